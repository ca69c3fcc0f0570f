"""A user's own data: a folder tree, an NPZ of arrays or a table of files."""
