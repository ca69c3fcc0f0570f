"""UCI Adult by ten clients: private partitioned variational inference.

Mean-field logistic regression with one factor per client. A visit is 25
differentially private steps with batches of 2 % of the client's rows (Poisson,
at least 20), by Adagrad, whose state stays with the client. Damping is 0.1 and
the server synchronous. Every client stops before it would exceed its budget, at
its own delta, 10^floor(log10(1 / rows)). Data: `adult.data` and `adult.test` in
--data_dir; the last tenth of `adult.data` is public validation data.

Commands, the first for this config, the second for all splits and budgets with
a table:
  episodic-dp pvi --config=adult --data_dir=DATA --workdir=DIR
  python -m experiments.reproduce --target=pvi_adult --scale=cpu \\
      --workdir=DIR --data_dir=DATA

Arguments after the colon: private (1), split (homogeneous; or inhomogeneous_1,
inhomogeneous_2), epsilon (1.0), rounds (300), clients (10).
"""

import math

import ml_collections

from episodic_dp.config import defaults
from episodic_dp.config import pvi


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """Return the config; `text` holds the arguments named above."""
  arg = defaults.arguments(
      text, private=True, split="homogeneous", epsilon=1.0, rounds=300,
      clients=10,
  )
  c = defaults.base(
      pvi.Config,
      table=dict(name="adult", split=arg.split, clients=arg.clients),
      rounds=arg.rounds,
  )
  if arg.private:
    c.target_epsilon = arg.epsilon
  else:
    c.visit.clip_norm, c.visit.noise_multiplier = math.inf, 0.0
  return c
