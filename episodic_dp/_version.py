"""The version, which setup.py reads as text."""

__version__ = "0.2.0"
