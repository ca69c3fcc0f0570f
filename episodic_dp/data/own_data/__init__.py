"""Images of the user's own: a folder tree or an NPZ of arrays."""
