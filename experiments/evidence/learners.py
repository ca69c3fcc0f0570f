"""Tables of learners that can be trained privately, computed by the code.

Every cell makes the plan, the guarantee and the training step on small data
and a narrow Conv4; none is trained.
"""

from collections.abc import Mapping
import dataclasses
import functools
import math
import pathlib
from typing import Any

import jax
import numpy as np
import optax

from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan as plan_lib
from episodic_dp import private
from experiments.evidence import pages

FILE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "learners.md"
NORMS = ("batch", "group", "none")
WAY = 4  # Classes of a task, and of the labels of examples.
_SHAPE = (16, 16, 1)
_HEAD = """# Learners and clipping

After this page you know which combinations of learner, network and clip unit
can be trained privately. Written by

```sh
python -m experiments.evidence --only=learners --write
```

which asks `private.make_meta_step` and `accounting.guarantee` for every cell,
on small data and a narrow Conv4; a test compares this file with the code. The
[support matrix](support.md) has the samplers and levels of each clip unit.

- **sound**: the step is made, and some level has a finite ε.
- **no**: no proof is known; `UnsoundPlanError` names the rule.
- **–**: the parts do not fit together; the error says why.

`batch`, `group` and `none` are norms of the network; a cell without them holds
for all three. Numbers refer to the sentences below each table.
"""
_OWN = """
## Your own learner

Write a frozen dataclass below `learners.Learner` with the field `model` and the
method `adapt`, and pass it as `learner` in Python
([quick start](quick_start.md#from-python)). `adapt` returns the parameters that
a support set changes, and may read its arguments alone: then the gradient of
the query loss belongs to one task, which is clipped as a whole. The command
line and the estimator take the learners above.
"""


@dataclasses.dataclass(frozen=True, eq=False)
class Variant:
  """A learner and its options.

  Attributes:
    label: its label in the table.
    kind: its class.
    options: arguments of the class.
  """

  label: str
  kind: type
  options: dict[str, Any]

  def build(self, norm: str) -> Any:
    """Make the learner on a narrow Conv4."""
    if "way" in _fields(self.kind):  # Compares features, has no head.
      return self.kind(_network(norm, None), way=WAY, **self.options)
    return self.kind(_network(norm, WAY), **self.options)


@functools.cache
def _network(norm: Any, way: int | None) -> models.Model:
  model = models.conv4(way, 4, norm, _SHAPE)
  # Traced once for all learners, instead of in every check.
  return model._replace(apply=jax.jit(model.apply))


def _fields(kind: type) -> list[str]:
  return [field.name for field in dataclasses.fields(kind)]


def variants() -> list[Variant]:
  """Return every trained learner, in each of its orders."""
  found = []
  for entry in learners.LEARNERS.values():
    kind = entry.load()
    fields = _fields(kind)
    steps: dict[str, Any] = {}
    if "inner_steps" in fields:
      steps["inner_steps"] = 1
    switches = {kind.__name__: steps}
    if kind is learners.MAML:
      switches["MAML++"] = steps | dict(
          learned_rates=True, per_step_norm=True, loss_weights=(1.0,)
      )
    if "order" in fields:
      for label, options in switches.items():
        for order in ("second", "first"):
          title, chosen = f"{label}, {order} order", {"order": order}
          found.append(Variant(title, kind, options | chosen))
    else:
      found.append(Variant(kind.__name__, kind, steps))
  return found


@dataclasses.dataclass(frozen=True)
class Unit:
  """A clip unit, and a plan on data that contain it.

  Attributes:
    clip_unit: for the mechanism.
    hierarchy: the sampled units.
    form: form of the episode, or None.
    noisy: whether inner steps are noisy.
  """

  clip_unit: str
  hierarchy: plan_lib.Hierarchy
  form: Any = None
  noisy: bool = False

  def release(self, learner: Any) -> plan_lib.Release:
    """Describe a step of some of these units."""
    episode, tasks, sampled = None, None, 8
    if self.form == "independent":
      tasks, sampled = 2, WAY
    if self.form is not None:
      episode = plan_lib.Episode(WAY, 1, 2, self.form, tasks=tasks)
    first = plan_lib.FixedSize(sampled)
    below = (plan_lib.FixedSize(WAY), plan_lib.FixedSize(3))
    noisy: dict[str, Any] = {}
    if self.noisy:
      noisy = dict(
          order=learner.order or "first",
          inner_steps=learner.inner_steps or 1,
          inner_clip_norm=1.0,
          inner_noise_multiplier=pages.NOISE,
      )
    return plan_lib.Release(
        self.hierarchy,
        plan_lib.SamplingPlan(
            (first, *below[3 - self.hierarchy.depth :]), episode
        ),
        plan_lib.Mechanism(
            clip_unit=self.clip_unit,
            noise_multiplier=pages.NOISE,
            **noisy,
        ),
    )


def units() -> dict[str, Unit]:
  """Return label -> every unit that can have a clipped gradient."""
  regular = plan_lib.Hierarchy.regular
  participants = regular((16, 8, 6), levels=("participant", "class", "image"))
  classes = regular((16, 6), levels=("class", "image"))
  return {
      "participant": Unit("participant", participants, "unit"),
      "episode (disjoint)": Unit(plan_lib.EPISODE, classes, "disjoint"),
      "episode (independent)": Unit(plan_lib.EPISODE, classes, "independent"),
      "example with noisy inner steps": Unit(
          "image", participants, "unit", noisy=True
      ),
      "example without a task": Unit(
          "image", regular((64,), levels=("image",))
      ),
  }


def ask(variant: Variant, norm: str, unit: Unit) -> pages.Refusal | None:
  """Make the plan, the guarantee and the step; return the refusal, or None."""
  learner = variant.build(norm)
  rows = unit.hierarchy.num_leaves
  black = data.ArrayDataset(
      name="black",
      images=np.zeros((rows, *_SHAPE), np.uint8),
      hierarchy=unit.hierarchy,
      labels=np.arange(rows) % WAY,
  )
  try:
    release = unit.release(learner)
    found = accounting.guarantee(
        release, steps=pages.STEPS, delta=pages.DELTA,
        level=unit.hierarchy.levels[-1],
    )
    private.make_meta_step(learner, optax.sgd(1.0), black, release)
  except ValueError as e:
    return pages.Refusal.of(e)
  assert math.isfinite(found.epsilon)
  return None


def table() -> pages.Section:
  """Test every learner, clip unit and norm."""
  notes = pages.Notes(v.kind.__name__ for v in variants())

  def cell(variant: Variant, unit: Unit) -> str:
    verdicts = dict.fromkeys(NORMS, "sound")
    for norm in NORMS:
      refusal = ask(variant, norm, unit)
      if refusal is not None:
        verdicts[norm] = notes.verdict(refusal)
    return _grouped(verdicts)

  rows = []
  for variant in variants():
    cells = [cell(variant, unit) for unit in units().values()]
    rows.append((variant.label, *cells))
  return pages.Section(
      "Learners and clip units",
      "Columns are clip units, with the form of the episode in parentheses.",
      pages.Table(("learner", *units()), rows),
      notes,
  )


def _grouped(verdicts: Mapping[str, str]) -> str:
  """Join names of one verdict: "group, none: sound; batch: no (3)"."""
  found: dict[str, list[str]] = {}
  for name, verdict in verdicts.items():
    found.setdefault(verdict, []).append(name)
  if len(found) == 1:
    return next(iter(found))
  return "; ".join(
      f"{', '.join(names)}: {verdict}" for verdict, names in found.items()
  )


def descriptions() -> pages.Section:
  """Describe each learner's adaptation and release."""
  rows = []
  kinds = [entry.load() for entry in learners.LEARNERS.values()]
  for kind in (*kinds, learners.FineTuning):
    releases = kind.releases or "nothing: it is not meta-trained"
    rows.append((kind.__name__, kind.paper, kind.adapted, releases))
  return pages.Section(
      "The learners",
      "The parameters that a support set adapts, and the vector that is clipped"
      " and noised. Every learner predicts each query by itself.",
      pages.Table(("learner", "from", "adapts", "releases"), rows),
      pages.Notes(),
  )


def document() -> str:
  """Return the whole page."""
  parts = [_HEAD, table().markdown(), descriptions().markdown()]
  return "\n".join(parts) + _OWN
