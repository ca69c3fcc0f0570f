"""One-step privacy profiles of the types of units that a plan samples."""
