"""Propose tasks per step, steps, queries and a clip norm for an epsilon.

  episodic-dp plan --config=glyphs --epsilon=1
  episodic-dp plan --config=own_data:levels=person/class/image --epsilon=2 \\
      --data_dir=PATH --format=json

The candidates vary the config: more query images of a class, smaller clip
norms, and more or fewer people in a step, with the same number of tasks in all
steps together. The accountant finds the noise with which each candidate spends
epsilon. Public tasks show how much of its step is signal. The command marks one
candidate, prints the command that trains it, and says in one line what limits
it. It marks the config itself unless another candidate is clearly better.

The public tasks come from the validation split, which is public by assumption.
Of the training data the command reads only the numbers of units, which are also
public. It takes a minute for small networks.
"""

import shlex

from absl import flags

from episodic_dp import data
from episodic_dp.analysis import propose
from episodic_dp.cli import shared_flags


def define_flags() -> None:
  """Define the flags of the config and the target."""
  shared_flags.define_config()
  shared_flags.define_data()
  shared_flags.define_format()
  shared_flags.define_target()


def main(values: flags.FlagValues) -> None:
  """Print the table with the choice and its command, or JSON."""
  config = shared_flags.run(values)
  result = propose.propose(
      config,
      epsilon=values.epsilon,
      level=values.level,
      neighbours=values.neighbours,
      data_dir=values.data_dir,
      download=values.download,
  )
  given = [f"--config={values.config}"]
  given += [
      f"--config.{name}={text}"
      for name, text in shared_flags.fields(values).items()
  ]
  if values.data_dir is not None:
    given.append(f"--data_dir={values.data_dir}")
  elif config.data.name not in data.GENERATED:
    given.append("--data_dir=DATA")
  command = " ".join(
      ["episodic-dp train", *map(shlex.quote, given), *result["flags"]]
  )
  result["command"] = command
  shared_flags.show(
      result, f"{propose.table(result)}\n\n{command} --workdir=DIR"
  )
