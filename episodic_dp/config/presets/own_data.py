"""Own data: a folder `class/image` or `group/class/image`, NPZ, or table.

The program first reads the sizes of the hierarchy from the folder, or from the
labels. They are public by assumption, and so are the names of the units and
their division into parts: see `episodic_dp.data.own_data.load`.

Commands:
  episodic-dp train --config=own_data \\
      --data_dir=PATH --workdir=DIR
  episodic-dp account --config=own_data \\
      --data_dir=PATH

With three levels, as in levels=person/class/image, a step samples people by
Poisson sampling, and each person is a task of `way` of their classes. This form
has the best guarantees. By default a prototypical network trains the scales and
shifts of a public start, `glyphs` for grey images and `scenes` for colour; with
width=8 or start=none it starts with random weights. A person with too few
classes or images for a task contributes nothing.

With two levels a step samples classes and cuts them into tasks, and the
gradient of a task is clipped.

The class need not be the level above the images. In diagnosis/patient/image
with classes=diagnosis a task classifies diagnoses by images of different
patients, and a patient has a guarantee. If a patient may have images of several
diagnoses (a .csv of file, patient, diagnosis; or folders of equal names),
--config.data.options.crossing=patient extends the guarantee to the patient in
all of them, and --config.data.options.by=patient divides patients, not
diagnoses, into training, validation and test:

  episodic-dp train --data_dir=PATH --workdir=DIR \\
      --config=own_data:levels=diagnosis/patient/image,classes=diagnosis \\
      --config.data.options.crossing=patient --config.data.options.by=patient

docs/data.md has an example with its numbers.

Expected for the 1000 writers of `python -m experiments.export_glyphs
--out=PATH`, with levels=writer/glyph/drawing and --epsilon=2, on two busy CPU
cores: 3 minutes, test accuracy 99.7 % with 2.0, whose queries came together
(random weights 64.8 %, the public start 99.8 %), at epsilon 1.987 for a writer,
3.548 for a glyph and 1.621 for a drawing (delta = 1e-4).

Arguments after the colon: levels (class/image: the folders from the top down,
or the names of the labels, then a name for the images), classes (the level that
is classified: the one above the images, or the first), private (1), way (5),
shot (1), query (1), tasks (4: of a step, with two levels or classes on top),
rate (0.5: share of the people that a step samples, with three levels), start
(the public weights: glyphs or scenes with three levels and no width or network,
otherwise none), network (the network: conv4, features for embeddings, conv1d
for series, or mlp), noise_multiplier (1.0; --epsilon computes it), width (0: 32
with a start, 8 without), inner_steps (1), steps (60). δ is the largest power of
ten below 1 / (10 N), for N units of --config.privacy_unit.

--config.data.options.size, .color and .depth set the format of images, and
further options set the division. Units with fewer classes or examples than a
task takes, such as empty ones, need --config.plan.allow_short_units=True, the
default where each task is of one person: a task that cannot be filled
contributes nothing.
"""

from typing import Any

import ml_collections

from episodic_dp.config import defaults


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """Return the config; `text` holds the arguments named above."""
  arg = defaults.arguments(
      text, levels="class/image", classes="", private=True, way=5, shot=1,
      query=1, tasks=4, rate=0.5, start="", network="", noise_multiplier=1.0,
      width=0, inner_steps=1, steps=60,
  )
  levels = tuple(arg.levels.split("/"))
  stages, episode = _tasks(arg, levels)
  by_person = episode["form"] == "unit"
  c = defaults.base(
      steps=arg.steps,
      plan=dict(stages=stages, allow_short_units=by_person),
      episode=dict(way=arg.way, shot=arg.shot, query=arg.query, **episode),
      mechanism=defaults.mechanism(
          arg.private,
          clip_unit=levels[0] if by_person else "episode",
          clip_norm=1.0,
          noise_multiplier=arg.noise_multiplier,
      ),
      data=dict(name="own_data", options=dict(levels=levels)),
  )
  if "classes" in episode:
    c.privacy_unit = levels[1]
  chosen = arg.width or arg.network
  start = arg.start or ("auto" if by_person and not chosen else "none")
  c.model.name, c.model.width = arg.network or "conv4", arg.width or 8
  if start != "none":
    c.model.start, c.model.trained = start, "scale_shift"
    c.model.width = arg.width or 32
    c.learner.metric_scale = 0.03  # About that of the starts' own training.
  c.learner.name = "protonet" if by_person else "maml"
  c.learner.rotate_support = by_person
  c.learner.inner_steps = arg.inner_steps
  c.optimizer.rate, c.optimizer.final_rate = 0.03, 0.003
  c.evaluation.shot = arg.shot
  return c


def _tasks(
    arg: Any, levels: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, Any]]:
  """Return the stages, and the dependent fields of the episode."""
  if len(levels) not in (2, 3):
    raise ValueError(
        f"config argument levels={arg.levels}: expected two or three levels,"
        " such as class/image or writer/letter/drawing"
    )
  classes = arg.classes or levels[-2]
  if classes not in (levels[0], levels[-2]):
    raise ValueError(
        f"config argument classes={arg.classes}: expected the first level or"
        f" the one above the examples, classes={levels[0]} or"
        f" classes={levels[-2]}"
    )
  examples = f"FixedSize({arg.shot + arg.query})"
  drawn = f"FixedSize({arg.way})"
  if len(levels) == 2:
    drawn = f"FixedSize({arg.tasks * arg.way})"
    return (drawn, examples), dict(form="disjoint")
  if classes == levels[0]:  # Few classes: every task samples them again.
    return (drawn, examples, "FixedSize(1)"), dict(
        form="independent", tasks=arg.tasks, classes=classes
    )
  return (f"Poisson({arg.rate})", drawn, examples), dict(form="unit")
