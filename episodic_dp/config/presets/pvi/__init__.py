"""Configurations of `episodic-dp pvi`: one file each, with `get_config()`."""
