-- sizes.lua: SMs of labels, as administrators write them.

-- Of "api=64,embed=32" the number of SMs by label; 0 stands for all of them.
local function read(text)
  local sms, at = {}, 1
  for _ = 1, 256 do
    if at > #text then return sms end
    local comma = string.find(text, ",", at, true) or #text + 1
    local one = string.sub(text, at, comma - 1)
    local equals = string.find(one, "=", 1, true)
    local count = equals and tonumber(string.sub(one, equals + 1))
    if not count or equals == 1 or not (count >= 0) or count ~= math.floor(count) then
      error("sizes: '" .. one .. "' is not LABEL=SMS; write api=64,embed=32")
    end
    sms[string.sub(one, 1, equals - 1)] = count
    at = comma + 1
  end
  error("sizes: over 256 labels")
end

return { read = read }
