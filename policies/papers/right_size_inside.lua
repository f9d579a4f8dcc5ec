-- right_size_inside.lua: the old name of right_size, which searches the sizes of graphs as well.
return import "right_size"
