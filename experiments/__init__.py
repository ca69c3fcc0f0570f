"""Command lines: small mains over `episodic_dp`, and their configs."""
