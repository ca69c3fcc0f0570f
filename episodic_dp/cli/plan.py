"""Propose tasks per step, steps, noise and clip norm for an epsilon.

  episodic-dp plan --config=glyphs --epsilon=1 --tasks=20000
  episodic-dp plan --config=omniglot --epsilon=0.5 --data_dir=DATA \\
      --format=json

The config names the learner, the data and the sampler; the budget is the number
of tasks of all steps together. It can be spent on many small steps or on few
large ones. The accountant finds the noise with which each choice spends
epsilon, and public tasks show which part of such a step is signal. The best
choice is marked, and its command printed.

The public tasks are from the validation split, which is public by assumption.
Training data are not used. Small networks take half a minute.
"""

import shlex

from absl import flags

from episodic_dp import data
from episodic_dp.analysis import propose
from episodic_dp.cli import shared_flags


def define_flags() -> None:
  """Define the flags of the config, the target and the budget."""
  shared_flags.define_config()
  shared_flags.define_data()
  shared_flags.define_format()
  shared_flags.define_target()
  flags.DEFINE_integer(
      "tasks", propose.BUDGET, "The budget: tasks of all steps together.", 1
  )


def main(values: flags.FlagValues) -> None:
  """Print the table with the choice and its command, or JSON."""
  config = shared_flags.run_config(values)
  result = propose.propose(
      config,
      epsilon=values.epsilon,
      level=values.level,
      tasks=values.tasks,
      data_dir=values.data_dir,
      download=values.download,
  )
  given = [f"--config={values.config}"]
  given += [f"--config.{text}" for text in shared_flags.fields(values)]
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
