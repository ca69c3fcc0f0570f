"""Presets, the reference of their fields, and what is solved for a run."""
