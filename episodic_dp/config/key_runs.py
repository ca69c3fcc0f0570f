"""Runs that differ in their keys alone: how they are named and told apart.

Each draws a secret key of its own and takes a seed of its own for its initial
parameters; each has a folder of its own below one that they share.
"""


def name(key: int) -> str:
  """Of the folder of run `key`, from 0."""
  return f"key={key}"


def folder(workdir: str, run: str) -> str:
  """The work directory of a run of that name; also on an object store."""
  return f"{workdir.rstrip('/')}/{run}"
