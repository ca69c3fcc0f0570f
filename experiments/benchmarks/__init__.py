"""Programs that measure time; each prints JSON."""
