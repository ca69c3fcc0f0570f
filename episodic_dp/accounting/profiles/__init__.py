"""One-step privacy profiles of the kinds of units that a plan samples."""
