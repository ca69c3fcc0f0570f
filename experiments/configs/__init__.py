"""One file per experiment, each with `get_config()`."""
