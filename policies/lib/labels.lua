-- labels.lua: numbers of labels, as administrators write them: "api=64, embed=32".

local form = {}                -- the parameter's name, unit, example, most, whole
local numbers = {}             -- by label
local unmet = {}               -- named labels that no client has had so far
local told, told_most = {}, 16 -- clients' labels that were traced as not named; at most so many

local function trim(text)
  local first, last = 1, #text
  while string.sub(text, first, first) == " " do first = first + 1 end
  while last > first and string.sub(text, last, last) == " " do last = last - 1 end
  return string.sub(text, first, last)
end

local function refuse(entry, text, why)
  error(form.name .. ": entry " .. entry .. ", '" .. text .. "', " .. why .. "; write "
        .. form.example, 0)
end

local function read_entry(entry, text)
  local equals = string.find(text, "=", 1, true) or 1
  local label = trim(string.sub(text, 1, equals - 1))
  local number = tonumber(string.sub(text, equals + 1))
  if label == "" or not number then refuse(entry, text, "is not LABEL=" .. form.unit) end
  if not (number >= 0 and number <= form.most) then
    refuse(entry, text, "is not from 0 to " .. form.most)
  end
  if form.whole and number ~= math.floor(number) then refuse(entry, text, "is no whole number") end
  if numbers[label] then refuse(entry, text, "names its label again") end
  numbers[label], unmet[label] = number, true
end

-- Reads the parameter's value, in `init`. A wrong entry is an error, which refuses the load.
local function read(of, text)
  form, numbers, unmet = of, {}, {}
  if trim(text) == "" then return end
  local at = 1
  for entry = 1, 256 do
    local comma = string.find(text, ",", at, true) or #text + 1
    read_entry(entry, trim(string.sub(text, at, comma - 1)))
    at = comma + 1
    if comma > #text then return end
  end
  error(form.name .. ": over 256 labels", 0)
end

-- The number of a label; nil if it is not named.
local function of(label) return numbers[label] end

-- Called in `client_init`: the client's label is not missing any more.
local function meet(c) unmet[c.label] = nil end

-- Called in a hook that runs once all clients were met. A client whose label is not named, while a
-- named label has had no client, suggests a misspelt label.
local function check(c)
  if numbers[c.label] then return end
  local missing = next(unmet)
  if not missing or told[c.label] or #told == told_most then return end
  told[c.label], told[#told + 1] = true, c.label
  trace("%s: no client has had the label '%s' so far, and '%s' is not named", form.name, missing,
        c.label)
end

return { read = read, of = of, meet = meet, check = check }
