"""Your own images: a folder `class/image` or `group/class/image`, or an NPZ.

The sizes of the hierarchy are read from the folder, or from the labels, before
anything else. They are public by assumption, and so are the names of the units
and which of them are for training: see `episodic_dp.data.own_data.load`.

Commands:
  episodic-dp train --config=own_data \\
      --data_dir=PATH --workdir=DIR
  episodic-dp account --config=own_data \\
      --data_dir=PATH

With two levels a step draws classes and cuts them into tasks, and what is
clipped is the gradient of a task. With three, as in
levels=writer/glyph/drawing, a step draws primary units (Poisson), each of which
is a task of `way` of its classes: the form with the better guarantees, for the
number of tasks is random.

Expected of the 1000 writers that `python -m experiments.export_glyphs
--out=PATH` makes, with levels=writer/glyph/drawing, on two CPU cores that were
busy with other work too: 3 minutes, test accuracy 51 % (untrained 30 %, chance
20 %; the noise differs from key to key) at epsilon 5.573 for a writer, 6.522
for a glyph and 3.196 for a drawing (delta = 1e-5).

Arguments after the colon: levels (class/image: the folders from the top down,
or the names of the label arrays, then a name for the images), private (1), way
(5), shot (1), query (1), tasks (4: of a step, with two levels), rate (0.1: the
share of the primary units that a step draws, with three), noise_multiplier
(1.0), width (8), inner_steps (1), steps (60). Size, colour and division are
--config.data.options.size and so on. Units with fewer classes or images than a
task takes, such as empty ones, need --config.plan.allow_short_units: a task
that cannot be filled contributes nothing.
"""

import ml_collections
from ml_collections import config_dict

from episodic_dp.config import arguments
from episodic_dp.config import defaults


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """The config; `text` holds the arguments named above."""
  arg = arguments.parse(
      text,
      levels="class/image",
      private=True,
      way=5,
      shot=1,
      query=1,
      tasks=4,
      rate=0.1,
      noise_multiplier=1.0,
      width=8,
      inner_steps=1,
      steps=60,
  )
  levels = tuple(arg.levels.split("/"))
  if len(levels) not in (2, 3):
    raise ValueError(
        f"config argument levels={arg.levels} must name two or three levels,"
        " such as class/image or writer/letter/drawing"
    )
  grouped = len(levels) == 3
  examples = f"FixedSize({arg.shot + arg.query})"
  c = defaults.base()
  c.steps = arg.steps
  stages: tuple[str, ...]
  if grouped:
    stages = (f"Poisson({arg.rate})", f"FixedSize({arg.way})", examples)
  else:
    stages = (f"FixedSize({arg.tasks * arg.way})", examples)
  c.plan = ml_collections.ConfigDict(
      dict(stages=stages, allow_short_units=False)
  )
  c.episode = ml_collections.ConfigDict(
      dict(
          way=arg.way,
          shot=arg.shot,
          query=arg.query,
          form="unit" if grouped else "disjoint",
      )
  )
  c.mechanism = defaults.mechanism(
      arg.private,
      clip_unit=levels[0] if grouped else "episode",
      clip_norm=1.0,
      noise_multiplier=arg.noise_multiplier,
  )
  c.data = ml_collections.ConfigDict(
      dict(
          name="own_data",
          options=dict(
              levels=levels,
              size=config_dict.placeholder(int),
              color=config_dict.placeholder(bool),
              depth=config_dict.placeholder(int),
              offset=config_dict.placeholder(tuple),
              scale=config_dict.placeholder(tuple),
              clip=config_dict.placeholder(tuple),
              shares=config_dict.placeholder(tuple),
              seed=0,
          ),
      )
  )
  c.model.width = arg.width
  c.learner.inner_steps = arg.inner_steps
  c.optimizer.rate, c.optimizer.final_rate = 0.03, 0.003
  c.evaluation.shot = arg.shot
  return c
