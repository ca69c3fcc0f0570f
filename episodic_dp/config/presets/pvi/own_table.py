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

from episodic_dp import plain
from episodic_dp.config.pvi import Config
from episodic_dp.config.pvi import TableOptions
from episodic_dp.config.pvi import Visit


def own_table(
    *,
    private: bool = True,
    epsilon: plain.Positive = 1.0,
    rounds: plain.Count = 100,
    noise: plain.NotNegative = 5.0,
    clip_norm: plain.NotNegative = 2.0,
) -> Config:
  """Return the run; the module describes it and its arguments."""
  visit = Visit.without_privacy()
  if private:
    visit = Visit(clip_norm=clip_norm, noise_multiplier=noise)
  return Config(
      table=TableOptions(name="own_table"),
      visit=visit,
      rounds=rounds,
      target_epsilon=epsilon if private else None,
  )
