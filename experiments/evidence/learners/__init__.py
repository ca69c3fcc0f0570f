"""Which learners, clip units, samplers and norms are sound together."""
