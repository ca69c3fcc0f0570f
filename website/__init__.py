"""The documentation site: extensions that `mkdocs.yml` uses."""
