"""A small table of one's own: three hospitals."""

import csv
import json

import numpy as np

SCHEMA = {
    "client": "hospital",
    "clients": ["north", "south", "east"],
    "label": "outcome",
    "classes": ["well", "ill"],
    "columns": {
        "age": {"centre": 50, "scale": 20},
        "cost": {"centre": 5, "scale": 3, "log": True},
        "sex": ["female", "male"],
    },
}


def _rows():
  rng = np.random.default_rng(0)
  for i in range(24):
    age = int(rng.integers(20, 90))
    yield {
        "hospital": SCHEMA["clients"][i % 3],
        "age": str(age),
        "cost": str(int(rng.integers(0, 1000))),
        "sex": ["female", "male"][int(rng.integers(2))],
        "outcome": ["well", "ill"][int(age > 55)],
    }


ROWS = list(_rows())


def write(folder):
  """train.csv, test.csv and schema.json."""
  for name, rows in (("train", ROWS), ("test", ROWS[:9])):
    with open(folder / f"{name}.csv", "w", newline="") as file:
      writer = csv.DictWriter(file, list(ROWS[0]))
      writer.writeheader()
      writer.writerows(rows)
  (folder / "schema.json").write_text(json.dumps(SCHEMA))
