"""The version, which setup.py reads as text."""

__version__ = "1.0.0"
