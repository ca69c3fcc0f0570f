"""What writes the support matrix and the errata, by asking the library."""
