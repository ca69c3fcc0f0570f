"""The distinct kinds of units of a level: rows of rates and distances.

A profile grows with every rate and distance, so a row that is nowhere above
another is left out, and rows may be merged into their largest entries.
"""

import math

import numpy as np

# More distinct kinds of units than this are merged into their upper bounds.
MAX_KINDS = 24


def front(rows: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
  """Rows that between them are above all, `MAX_KINDS` at most."""
  return merge(_undominated(sorted(set(rows), reverse=True)), MAX_KINDS)


def _undominated(rows: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
  """The rows that no other row equals or exceeds in every column."""
  kept: list[tuple[float, ...]] = []
  above = np.zeros((len(rows), len(rows[0]) if rows else 0))
  for row in rows:  # Sorted downwards: only an earlier row can dominate.
    if not (above[: len(kept)] >= row).all(axis=1).any():
      above[len(kept)] = row
      kept.append(row)
  return kept


def merge(
    rows: list[tuple[float, ...]], limit: int
) -> list[tuple[float, ...]]:
  """At most `limit` rows, every given row under one of them."""
  if len(rows) <= limit:
    return rows
  size = math.ceil(len(rows) / limit)
  groups = [rows[i : i + size] for i in range(0, len(rows), size)]
  return _undominated(
      sorted((tuple(map(max, zip(*group))) for group in groups), reverse=True)
  )
