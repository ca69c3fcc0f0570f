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

from episodic_dp import plain
from episodic_dp.config.pvi import Config
from episodic_dp.config.pvi import Split
from episodic_dp.config.pvi import TableOptions
from episodic_dp.config.pvi import Visit


def adult(
    *,
    private: bool = True,
    split: Split = "homogeneous",
    epsilon: plain.Positive = 1.0,
    rounds: plain.Count = 300,
    clients: plain.Count = 10,
) -> Config:
  """Return the run; the module describes it and its arguments."""
  return Config(
      table=TableOptions(name="adult", split=split, clients=clients),
      visit=Visit() if private else Visit.without_privacy(),
      rounds=rounds,
      target_epsilon=epsilon if private else None,
  )
