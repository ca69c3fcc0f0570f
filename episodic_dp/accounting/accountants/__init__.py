"""Composition of steps: privacy loss distributions and Renyi moments."""
