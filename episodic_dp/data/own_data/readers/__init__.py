"""Readers of single files: `formats.pages` and `formats.read` take any path."""
