"""Your own table: a CSV file with a column that names the client of each row.

--data_dir is a folder with train.csv, schema.json and, optionally, a public
validation.csv and test.csv with the same columns (their clients are not read).
The schema declares the public facts: the clients, the classes, the values of
text columns, and centre and scale of number columns; docs/pvi.md shows one.

Command:
  episodic-dp pvi --config=own_table --data_dir=DIR --workdir=DIR

Arguments after the colon: private (1), epsilon (1.0), rounds (100), noise (5.0:
the noise multiplier), clip_norm (2.0).
"""

import math

import ml_collections

from episodic_dp.config import defaults
from episodic_dp.config import pvi


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """Return the config; `text` holds the arguments named above."""
  arg = defaults.arguments(
      text, private=True, epsilon=1.0, rounds=100, noise=5.0, clip_norm=2.0
  )
  c = defaults.base(
      pvi.Config,
      table=dict(name="own_table"),
      visit=dict(clip_norm=arg.clip_norm, noise_multiplier=arg.noise),
      rounds=arg.rounds,
  )
  if arg.private:
    c.target_epsilon = arg.epsilon
  else:
    c.visit.clip_norm, c.visit.noise_multiplier = math.inf, 0.0
  return c
