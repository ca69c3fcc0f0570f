"""Errors of an exported folder, and of what is given to it."""


class ExportError(ValueError):
  """What cannot be exported, loaded or classified; one sentence."""
