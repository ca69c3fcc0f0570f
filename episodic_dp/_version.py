"""The version, which setup.py reads as text."""

__version__ = "2.0.0"
