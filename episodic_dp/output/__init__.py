"""Files, tables and pictures: one way to write each."""
