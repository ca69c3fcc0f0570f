"""Errors that a description of a private run can raise."""


class PlanError(ValueError):
  """The plan does not fit its hierarchy, or contradicts itself."""


class UnsoundPlanError(ValueError):
  """No privacy guarantee is proved for this combination.

  The text names the rule that is broken and the nearest sound setting.
  """
