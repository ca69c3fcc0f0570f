"""Command lines: thin mains over `episodic_dp`, and their configs."""
