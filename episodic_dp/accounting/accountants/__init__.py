"""How steps are composed: privacy loss distributions, or Renyi moments."""
