"""Errors of a run that its user can mend: each text is one sentence."""


class RunError(ValueError):
  """A work directory, key, checkpoint or configuration cannot be used.

  The text names what is wrong and the remedy.
  """
