"""The commands of `episodic-dp`."""
