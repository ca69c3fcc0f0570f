"""Adapting with a guarantee: digits by new people, from the start `glyphs`."""

import collections
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import export
from episodic_dp import models
from episodic_dp import options
from episodic_dp.config import presets
from episodic_dp.data import glyphs
from episodic_dp.data import public
from episodic_dp.export import folder as folder_lib
from episodic_dp.models import networks
from episodic_dp.models import parts
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
# Scale -> numbers of people, groups of each number, images of a digit of each
# person, and one of how many test images.
_SIZES: dict[str, tuple[tuple[int, ...], int, int, int]] = {
    "smoke": ((4,), 2, 1, 2),
    "cpu": ((10, 30, 100, 300), 10, 3, 4),
    "full": ((10, 30, 100, 300, 539), 20, 30, 1),
}


class _Examples(NamedTuple):
  """Labelled images of some people.

  Attributes:
    images: uint8[n, 28, 28, 1].
    labels: int[n], their digits.
    people: int[n], who wrote them.
  """

  images: np.ndarray
  labels: np.ndarray
  people: np.ndarray

  def of(self, kept: np.ndarray) -> "_Examples":
    """Return some of them."""
    return _Examples(*(array[kept] for array in self))


def runs(scale: str) -> list[runs_lib.Computed]:
  """Return one part for each number of people."""
  people, groups, each, _ = _SIZES[scale]
  return [
      runs_lib.Computed(
          name=f"people_{n}", target="adaptation", scale=scale,
          labels=dict(people=n, groups=groups, each=each),
      )
      for n in people
  ]


def _load(
    smoke: bool, **where: Any
) -> tuple[_Examples, _Examples, np.ndarray]:
  """Return people to adapt to, people to test on, and public images."""
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


def _predictor(known: np.ndarray) -> export.Predictor:
  """Return the start as a model that is exported, with public moments."""
  network = options.Network(width=options.START_WIDTH)
  shape = known.shape[1:]
  model = networks.by_name(network, None, shape)._replace(public=known)
  weights = models.read_weights(options.STARTS[shape[-1]])
  params = parts.of_names(
      jax.eval_shape(model.init, jax.random.key(0)), weights
  )
  return export.Predictor(
      contents={folder_lib.CARD: b""},
      description=folder_lib.Description(
          format=folder_lib.FORMAT, written_by="", data="", network=network,
          learner=options.LearnerOptions(
              name="protonet", metric_scale=1 / options.START_WIDTH
          ),
          fine_tuning=None,
          preprocessing=folder_lib.Preprocessing(
              kind="image", shape=shape, dtype="uint8", resample="bilinear"
          ),
          way=2, shot=1, checkpoint="last", steps=(0,), weights=(), start=None,
          moments=True,
      ),
      statement={}, start=None, network=model,
      members=((params, jax.jit(model.public_moments)(params)),),
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


def _finish(
    run: runs_lib.Computed, folder: str, *, shared: runs_lib.Shared,
    **where: Any,
) -> dict[str, Any]:
  """Adapt to groups of people in every form, and test on others."""
  smoke = run.scale == "smoke"
  everyone, others, known = shared.made("data", lambda: _load(smoke, **where))
  model = shared.made("model", lambda: _predictor(known))
  tested = others.of(np.arange(len(others.labels)) % _SIZES[run.scale][-1] == 0)
  accuracies: dict[str, list[float]] = {form: [] for form in _FORMS}
  for seed in range(run.labels["groups"]):
    own = _group(everyone, run.labels["people"], run.labels["each"], seed)
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
    "people": panels.label("people"),
    **{title: _cell(form) for form, (title, _) in _FORMS.items()},
})


def _draw(outcomes: panels.Outcomes, figure: Any) -> None:
  lines: dict[str, list[panels.Point]] = {}
  for form, (title, _) in _FORMS.items():
    lines[title] = [
        (o["labels"]["people"], *_interval([o], form))
        for o in outcomes.values()
    ]
  panels.draw_lines(
      figure.subplots(), lines, "people", chance=10, logarithmic=True
  )


def _finding(outcomes: panels.Outcomes) -> str:
  """State what the largest group has."""
  same = [[*outcomes.values()][-1]]
  one, plain = (_interval(same, form)[0] for form in ("1", _PLAIN))
  return (
      f"Adapted to {same[0]['labels']['people']} people at ε = 1 for each, the"
      f" public start classifies {one:.1f} % of other people's digits, and"
      f" {plain:.1f} % without a guarantee."
  )


TARGETS = {
    "adaptation": panels.Target(
        title="Adapting with a guarantee: ten digits by new people",
        about="""\
The public start `glyphs`, which saw no handwriting, is adapted to the ten
digits of some training writers of MNIST and tested on other people, one image a
call. With ε the prototypes are made under noise, once; all images of a person
are protected together, at δ = 1e-5 (add or remove one). The last column
protects a single image in place of a person. *Without a guarantee* are the
plain prototypes of the start, class means by Euclidean distance.

| | |
| --- | --- |
| images of a digit of each person | at most 3 |
| centre and moments | 200 images of validation writers, public |
| intervals | 95 % over groups of people, each with new noise |""",
        notes="""\
With few people noise decides: a person moves the sum of all classes by 1, and
its noise is 3.7 in each of 320 coordinates at ε = 1. Each person contributes to
ten classes, so of a group of n the sum of a class grows with n / √10. One image
contributes to one class, so that single images cost far less.

The form (directions from a public centre, no counts) was chosen on validation
writers ([decision](../../docs/decisions/prediction.md)).""",
        runs=runs, table=_table, draw=_draw, finding=_finding, finish=_finish,
    )
}
