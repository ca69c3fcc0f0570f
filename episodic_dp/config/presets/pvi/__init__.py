"""Runs of `episodic-dp pvi`: one file each, with a function of that name."""
