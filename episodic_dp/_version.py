"""The version; setup.py reads this file as text."""

__version__ = "2.1.0"
