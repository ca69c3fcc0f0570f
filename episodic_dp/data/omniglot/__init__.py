"""Omniglot: 1623 handwritten characters of 50 alphabets, 20 drawings each."""
