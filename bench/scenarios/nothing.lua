-- nothing.lua: a policy that says nothing, so that heddled's built-in one decides: round.toml.
return policy { name = "nothing", api = 1, version = "1.0.0", hooks = {} }
