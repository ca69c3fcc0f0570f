"""Find the noise, the steps or the tasks per step for an epsilon.

  episodic-dp calibrate --config=glyphs --epsilon=3
  episodic-dp calibrate --config=glyphs --epsilon=1 --level=drawing \\
      --solve=steps
  episodic-dp calibrate --config=omniglot --epsilon=0.5 \\
      --delta=1e-7 --solve=tasks --format=json

The command changes one number of the config. It prints the least noise, or the
most steps or tasks per step, for which the guarantee of a level is within
epsilon, and the flag that sets it for episodic-dp train:

  noise_multiplier 0.72818 spends epsilon 2.991 of 3 for a participant (delta
  1e-05) at steps=60: --config.mechanism.noise_multiplier=0.72818

Neither data nor JAX are needed; for your own data only the sizes are listed.
"""

import dataclasses

from absl import flags
from absl import logging

from episodic_dp.cli import shared_flags
from episodic_dp.config import solving
from episodic_dp.output import phases


def define_flags() -> None:
  """Define the flags of the config and of the target."""
  shared_flags.define_config()
  shared_flags.define_data(download=False)
  shared_flags.define_format()
  shared_flags.define_target()
  flags.DEFINE_enum(
      "solve",
      "noise_multiplier",
      solving.SOLVERS,
      "The number to change; tasks are those of a step.",
  )


def main(values: flags.FlagValues) -> None:
  """Print one sentence, or JSON."""
  config = shared_flags.run(values)
  with phases.phase(f"solving for {values.solve}"):
    found = solving.calibrate(
        config,
        solve=values.solve,
        epsilon=values.epsilon,
        level=values.level,
        neighbours=values.neighbours,
    )
  if found.caveat:
    logging.warning(found.caveat)
  shared_flags.show(dataclasses.asdict(found), found.sentence())
