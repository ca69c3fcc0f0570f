"""What a plan samples and guarantees, as pictures and one HTML page."""
