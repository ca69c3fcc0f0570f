"""Adapting with a guarantee: digits, and features of a public network."""

import collections
import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import export
from episodic_dp import models
from episodic_dp import options
from episodic_dp.config import presets
from episodic_dp.data import backbone as backbone_lib
from episodic_dp.data import cifar_fs
from episodic_dp.data import glyphs
from episodic_dp.data import public
from episodic_dp.data.own_data import rows
from episodic_dp.export import folder as folder_lib
from episodic_dp.models import networks
from episodic_dp.models import parts
from experiments import backbones
from experiments import runs as runs_lib
from experiments.targets import panels

_DELTA = 1e-5
_PLAIN, _IMAGE, _NOISELESS = "plain", "image", "noiseless"
# Column -> its title, and epsilon.
_FORMS: dict[str, tuple[str, float | None]] = {
    "0.5": ("ε = 0.5", 0.5),
    "1": ("ε = 1", 1.0),
    "2": ("ε = 2", 2.0),
    _NOISELESS: ("ε = 10⁶ (hardly any noise)", 1e6),
    _PLAIN: ("without a guarantee", None),
    _IMAGE: ("ε = 1 of an image", 1.0),
}
_DIGITS, _FEATURES = "digits of writers", "CIFAR-FS, five classes, lite0"
# Scale -> numbers of people, groups of each number, images of a digit of each
# writer, and one of how many test images.
_SIZES: dict[str, tuple[tuple[int, ...], int, int, int]] = {
    "smoke": ((4,), 2, 1, 2),
    "cpu": ((10, 30, 100, 300), 10, 3, 4),
    "full": ((10, 30, 100, 300, 539), 20, 30, 1),
}
_WAY, _PEOPLE = 5, 300  # Of CIFAR-FS; a person has an image of each class.
_CHANCE = {_DIGITS: 10, _FEATURES: 100 / _WAY}


class _Examples(NamedTuple):
  """Labelled examples of some people.

  Attributes:
    images: [n, ...], images or their features.
    labels: int[n], their classes.
    people: int[n], whose they are.
  """

  images: np.ndarray
  labels: np.ndarray
  people: np.ndarray

  def of(self, kept: np.ndarray) -> "_Examples":
    """Return some of them."""
    return _Examples(*(array[kept] for array in self))


def runs(scale: str) -> list[runs_lib.Computed]:
  """Return one part for each kind of data and number of people."""
  people, groups, each, _ = _SIZES[scale]
  found = []
  for n in people:
    labels = dict(data=_DIGITS, people=n, groups=groups, each=each)
    found.append(_part(f"people_{n}", scale, labels))
  for n in people:
    if scale != "smoke" and n <= _PEOPLE:
      labels = dict(data=_FEATURES, people=n, groups=groups, each=1)
      found.append(_part(f"features_{n}", scale, labels))
  return found


def _part(
    name: str, scale: str, labels: dict[str, Any]
) -> runs_lib.Computed:
  return runs_lib.Computed(
      name=name, target="adaptation", scale=scale, labels=labels
  )


def _load(
    smoke: bool, **where: Any
) -> tuple[_Examples, _Examples, np.ndarray]:
  """Return writers to adapt to, writers to test on, and public images."""
  if smoke:
    made = np.asarray(glyphs.characters(jax.random.key(0), 3, 12))
    labels, people = np.indices(made.shape[:2]).reshape(2, -1)
    everyone = _Examples(made.reshape(-1, *made.shape[2:]), labels, people)
    known = public.examples(None, made.shape[2:])
    assert known is not None  # They are images.
    return everyone.of(people <= 6), everyone.of(people > 6), known
  splits = presets.load("mnist_writers").data.load(**where)
  found = []
  for split in (splits.train, splits.test):
    tree = split.hierarchy
    rows = np.asarray(split.rows(jnp.arange(tree.num_leaves)))
    writers = tree.parents(1)[tree.parents(2)]
    assert split.labels is not None  # The digits.
    found.append(_Examples(split.images[rows], split.labels[rows], writers))
  known = public.examples(splits.validation, splits.test.image_shape)
  assert known is not None  # Of the validation data.
  return found[0], found[1], known


def _load_features(**where: Any) -> tuple[np.ndarray, np.ndarray]:
  """Return features of the test classes, [classes, images, d], and public ones.

  The public ones are of classes for validation.
  """
  splits = presets.load("cifar_fs").data.load(**where)
  network = backbone_lib.opened(
      backbone_lib.Backbone(
          file=backbones.LITE0, size=backbones.SIZE, mean=backbones.MEAN,
          std=backbones.STD,
      ),
      backbone_lib.read(backbones.LITE0), backbones.LITE0,
  )
  public_ones = np.asarray(splits.validation.images)
  chosen = np.linspace(0, len(public_ones) - 1, public.COUNT).astype(int)
  known, found = (
      np.stack([*rows.features(images, network)])
      for images in (public_ones[chosen], np.asarray(splits.test.images))
  )
  return found.reshape(-1, cifar_fs.EXAMPLES, found.shape[1]), known


def _predictor(known: np.ndarray) -> export.Predictor:
  """Return a network before any training, as a model that is exported.

  Args:
    known: float32[n, ...], public images or features. Those of images normalise
      all others.
  """
  shape = known.shape[1:]
  if len(shape) == 1:
    network = options.Network(name="features", linear=False, cosine=True)
    model = networks.by_name(network, None, shape)
    learner = options.LearnerOptions(name="protonet")
    params, moments = model.init(jax.random.key(0)), None
    kind: Literal["image", "features"] = "features"
  else:
    network = options.Network(width=options.START_WIDTH)
    model = networks.by_name(network, None, shape)._replace(public=known)
    learner = options.LearnerOptions(
        name="protonet", metric_scale=1 / options.START_WIDTH
    )
    params = parts.of_names(
        jax.eval_shape(model.init, jax.random.key(0)),
        models.read_weights(options.STARTS[shape[-1]]),
    )
    moments, kind = jax.jit(model.public_moments)(params), "image"
  return export.Predictor(
      contents={folder_lib.CARD: b""},
      description=folder_lib.Description(
          format=folder_lib.FORMAT, written_by="", data="", network=network,
          learner=learner, fine_tuning=None,
          preprocessing=folder_lib.Preprocessing(
              kind=kind, shape=shape,
              dtype="uint8" if kind == "image" else "float32",
              resample="bilinear",
          ),
          way=2, shot=1, checkpoint="last", steps=(0,), weights=(), start=None,
          moments=moments is not None,
      ),
      statement={}, start=None, network=model, members=((params, moments),),
  )


def _group(
    everyone: _Examples, count: int, each: int, seed: int
) -> _Examples:
  """Return `each` images of every digit of some people, drawn publicly."""
  rng = np.random.default_rng([count, seed])
  chosen = rng.choice(np.unique(everyone.people), count, replace=False)
  some = everyone.of(np.isin(everyone.people, chosen))
  held = collections.Counter[tuple[int, int]]()
  kept = []
  for unit in zip(some.people.tolist(), some.labels.tolist()):
    held[unit] += 1
    kept.append(held[unit] <= each)
  return some.of(np.asarray(kept))


def _of_classes(
    features: np.ndarray, people: int, seed: int
) -> tuple[_Examples, _Examples]:
  """Return an image of each of some classes for every person, and others.

  Args:
    features: float32[classes, images, d].
    people: number of people.
    seed: of the classes and images, which are drawn publicly.
  """
  rng = np.random.default_rng([people, seed])
  chosen = rng.choice(len(features), _WAY, replace=False)
  some = features[chosen][:, rng.permutation(features.shape[1])]
  own, others = some[:, :people], some[:, _PEOPLE:]

  def flat(held: np.ndarray) -> _Examples:
    labels, owners = np.indices(held.shape[:2]).reshape(2, -1)
    return _Examples(held.reshape(-1, held.shape[2]), labels, owners)

  return flat(own), flat(others)


def _finish(
    run: runs_lib.Computed, folder: str, *, shared: runs_lib.Shared,
    **where: Any,
) -> dict[str, Any]:
  """Adapt to groups of people in every form, and test on others."""
  people = run.labels["people"]
  if run.labels["data"] == _FEATURES:
    features, known = shared.made("features", lambda: _load_features(**where))
    groups = [
        _of_classes(features, people, seed)
        for seed in range(run.labels["groups"])
    ]
  else:
    smoke = run.scale == "smoke"
    everyone, others, known = shared.made(
        "writers", lambda: _load(smoke, **where)
    )
    every = _SIZES[run.scale][-1]
    tested = others.of(np.arange(len(others.labels)) % every == 0)
    groups = [
        (_group(everyone, people, run.labels["each"], seed), tested)
        for seed in range(run.labels["groups"])
    ]
  model = shared.made(run.labels["data"], lambda: _predictor(known))
  accuracies: dict[str, list[float]] = {form: [] for form in _FORMS}
  for own, tested in groups:
    for form, (_, epsilon) in _FORMS.items():
      terms: dict[str, Any] = {}
      if epsilon is not None:
        terms = dict(epsilon=epsilon, delta=_DELTA, public=known)
      if epsilon is not None and form != _IMAGE:
        terms["people"] = own.people
      adapted = model.adapt(own.images, own.labels, **terms)
      found = np.asarray(adapted.predict(tested.images).labels)
      accuracies[form].append(float((found == tested.labels).mean()))
  return runs_lib.record(run, folder, {
      "accuracies": accuracies, "images": len(tested.labels), "delta": _DELTA,
  })


def _interval(same: panels.Same, form: str) -> tuple[float, float, float]:
  """Return (mean, low, high) in percent: 95 % over groups of people."""
  values = 100 * np.asarray(same[0]["accuracies"][form])
  half = 1.96 * values.std(ddof=1) / math.sqrt(len(values))
  return values.mean(), values.mean() - half, values.mean() + half


def _cell(form: str) -> panels.Cell:
  def cell(same: panels.Same) -> str:
    mean, low, _ = _interval(same, form)
    return f"{mean:.1f} % ± {mean - low:.1f}"

  return cell


_table = panels.tabled({
    "data": panels.label("data"),
    "people": panels.label("people"),
    **{title: _cell(form) for form, (title, _) in _FORMS.items()},
})


def _draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Plot accuracy over people, a panel for each kind of data."""
  kinds = panels.group(outcomes, "people", "each")
  for same, axes in zip(kinds, np.ravel(figure.subplots(1, len(kinds)))):
    lines: dict[str, list[panels.Point]] = {}
    for form, (title, _) in _FORMS.items():
      lines[title] = [
          (o["labels"]["people"], *_interval([o], form)) for o in same
      ]
    data = same[0]["labels"]["data"]
    panels.draw_lines(
        axes, lines, f"people: {data}", chance=_CHANCE[data], logarithmic=True
    )


def _finding(outcomes: panels.Outcomes) -> str:
  """State what the largest group of writers has."""
  same = [
      o for o in outcomes.values() if o["labels"]["data"] == _DIGITS
  ][-1:]
  one, plain = (_interval(same, form)[0] for form in ("1", _PLAIN))
  return (
      f"Adapted to {same[0]['labels']['people']} people at ε = 1 for each, the"
      f" public start classifies {one:.1f} % of other people's digits, and"
      f" {plain:.1f} % without a guarantee."
  )


TARGETS = {
    "adaptation": panels.Target(
        title="Adapting with a guarantee: digits and photographs of new people",
        about=f"""\
The public start `glyphs`, which saw no handwriting, is adapted to the ten
digits of some training writers of MNIST and tested on other people, one image a
call. In the rows of CIFAR-FS the features of a public network,
EfficientNet-lite0 at {backbones.SIZE} pixels, are adapted to five test classes
of which each of some synthetic people has one image, and tested on other
images. With ε the prototypes are made under noise, once; all images of a person
are protected together, at δ = 1e-5 (add or remove one). The last column
protects a single image in place of a person. *Without a guarantee* are the
plain prototypes, class means, by Euclidean distance (of the features by cosine
distance).

| | |
| --- | --- |
| images of a digit of each writer | at most 3 |
| centre | 200 images of validation writers, or of validation classes, public |
| intervals | 95 % over groups of people, each with new noise |""",
        notes="""\
With few people noise decides: a person moves the sum of all classes by 1, and
its noise is 3.7 in each coordinate at ε = 1: 320 of a digit, 1280 of features.
Each person contributes to all classes, so of a group of n the sum of a class
grows with n / √10 or n / √5. One image contributes to one class, so that single
images cost far less.

The form (directions from a public centre, no counts) was chosen on validation
writers ([decision](../../docs/decisions/prediction.md)).""",
        runs=runs, table=_table, draw=_draw, finding=_finding, finish=_finish,
    )
}
