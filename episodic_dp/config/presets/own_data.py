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

Expected for the 1000 writers of `episodic-dp data --name=glyphs
--options=participants=1000,glyphs=6,drawings=4 --out=PATH`, with
levels=writer/glyph/drawing and --epsilon=2, on two busy CPU cores: two minutes,
test accuracy 99.6 % (random weights 58.4 %, the public start 99.6 %), at
epsilon 1.987 for a writer, 3.548 for a glyph and 1.621 for a drawing (delta =
1e-4).

Arguments after the colon: levels (class/image: the folders from the top down,
or the names of the labels, then a name for the images), classes (the level that
is classified: the one above the images, or the first), private (1), way (5),
shot (1), query (1), tasks (4: of a step, with two levels or classes on top),
rate (0.5: share of the people that a step samples, with three levels), start
(the public weights: glyphs or scenes with three levels and no width or network,
otherwise none), network (the network: conv4, features for embeddings, conv1d
for series, or mlp), backbone (the ONNX file whose features replace the images,
with network=features), noise_multiplier (1.0; --epsilon computes it), width (0:
32 with a start, 8 without), inner_steps (1), steps (60). δ is the largest power
of ten below 1 / (10 N), for N units of --config.privacy_unit.

--config.data.options.backbone.mean, .std, .order and .size set what a backbone
takes: 'data.backbone' describes them.

--config.data.options.size, .color and .depth set the format of images, and
further options set the division. Units with fewer classes or examples than a
task takes, such as empty ones, need --config.plan.allow_short_units=True, the
default where each task is of one person: a task that cannot be filled
contributes nothing.
"""

from episodic_dp import _validate
from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.run import Data
from episodic_dp.run import Run


def own_data(
    *,
    levels: tuple[str, ...] = ("class", "image"),
    classes: str = "",
    private: bool = True,
    way: plain.Count = 5,
    shot: plain.Count = 1,
    query: plain.Count = 1,
    tasks: plain.Count = 4,
    rate: plain.Rate = 0.5,
    start: str = "",
    network: str = "",
    backbone: str = "",
    noise_multiplier: plain.NotNegative = 1.0,
    width: plain.Whole = 0,
    inner_steps: plain.Count = 1,
    steps: plain.Count = 60,
) -> Run:
  """Return the run; the module describes it and its arguments.

  It has no hierarchy yet: `Run.resolved` lists the data.
  """
  _check_levels(levels, classes)
  by_person = len(levels) == 3 and classes in ("", levels[1])
  across = len(levels) == 3 and not by_person
  if by_person:
    sampling = defaults.people(rate, way, shot, query, allow_short_units=True)
  elif across:  # Few classes: every task samples them again.
    sampling = plan.SamplingPlan(
        (
            plan.FixedSize(way), plan.FixedSize(shot + query),
            plan.FixedSize(1),
        ),
        plan.Episode(
            way=way, shot=shot, query=query, form="independent", tasks=tasks,
            classes=classes,
        ),
    )
  else:
    sampling = plan.SamplingPlan(
        (plan.FixedSize(tasks * way), plan.FixedSize(shot + query)),
        plan.Episode(way=way, shot=shot, query=query, form="disjoint"),
    )
  if backbone:
    network = network or "features"
  if not start:
    start = "auto" if by_person and not (width or network) else "none"
  learner = options.LearnerOptions(
      name="protonet" if by_person else "maml",
      rotate_support=by_person,
      inner_steps=inner_steps,
  )
  model = options.Network(name=network or "conv4", width=width or 8)
  run = Run(
      steps=steps,
      plan=sampling,
      mechanism=defaults.mechanism(
          private,
          clip_unit=levels[0] if by_person else "episode",
          clip_norm=1.0,
          noise_multiplier=noise_multiplier,
      ),
      privacy_unit=levels[1] if across else None,
      data=Data(name="own_data", options=dict(levels=levels)),
      model=model,
      learner=learner,
      optimizer=options.Optimizer(rate=0.03, final_rate=0.003),
      evaluation=options.Evaluation(shot=shot),
  )
  run = defaults.on_features(run, backbone, network)
  if start == "none":
    return run
  return run.replace({
      "model.start": start,
      "model.trained": "scale_shift",
      "model.width": width or options.START_WIDTH,
      # About that of the starts' own training.
      "learner.metric_scale": 0.03,
  })


def _check_levels(levels: tuple[str, ...], classes: str) -> None:
  """Raise PlanError unless there are two or three levels, one of classes."""
  if isinstance(levels, str):
    raise _validate.refusal(
        "levels", levels, f"a tuple, {tuple(levels.split('/'))!r}"
    )
  if len(levels) not in (2, 3):
    raise _validate.refusal(
        "config argument levels", "/".join(levels),
        "two or three levels, such as class/image or writer/letter/drawing",
    )
  if classes not in ("", levels[0], levels[-2]):
    raise _validate.refusal(
        "config argument classes", classes,
        "the first level or the one above the examples,"
        f" classes={levels[0]} or classes={levels[-2]}",
    )
