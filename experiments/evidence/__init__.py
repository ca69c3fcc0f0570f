"""Pages whose tables the code itself fills in: see `__main__`."""
