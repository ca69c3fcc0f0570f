"""The version; setup.py reads this file as text."""

__version__ = "2.0.0"
