"""Plain data of which one value is another."""

import copy


def changed(data, path, value):
  """Return a copy with another value at a path.

  Args:
    data: objects and lists.
    path: the keys that lead to the value.
    value: the new one, a function of the old one, or KeyError to remove it.
  """
  data = copy.deepcopy(data)
  *above, last = path
  at = data
  for key in above:
    at = at[key]
  if value is KeyError:
    del at[last]
  else:
    at[last] = value(at[last]) if callable(value) else value
  return data
