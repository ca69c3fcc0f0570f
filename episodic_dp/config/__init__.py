"""From a text to a run."""
