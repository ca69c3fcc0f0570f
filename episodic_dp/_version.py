"""The version; setup.py reads this file as text."""

__version__ = "3.0.0"
