"""Learners, clip units and samplers, and the code's answer to each combination.

Small data, networks and plans, all of which are made, none trained.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import math
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

NORMS = ("batch", "group", "none")
SAMPLERS: tuple[plan_lib.Stage, ...] = (
    plan_lib.FixedSize(8),
    plan_lib.Poisson(0.1),
    plan_lib.All(),
    plan_lib.RandomAllocation(pages.STEPS),
)
# What sets the clip norm -> fields of the mechanism.
CLIPPINGS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "private_quantile": dict(
        clip_quantile=0.5, clip_rate=0.2, count_noise=10 * pages.NOISE
    ),
    "percentile_window": dict(clip_percentile=50.0, clip_window=4),
}
CLIP_BY = ("global", "layer")
WAY = 4  # Classes of a task, and of the labels of examples.
_SHAPE = (16, 16, 1)


# Learners ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Variant:
  """A learner and its switches.

  Attributes:
    label: for the table.
    kind: the class.
    options: for it.
  """

  label: str
  kind: type
  options: dict[str, Any]

  def build(self, norm: str, way: int = WAY) -> Any:
    """The learner on a narrow Conv4."""
    return self.on(functools.partial(_network, norm), way)

  def on(
      self,
      network: Callable[[int | None], models.Model],
      way: int,
      **options: Any,
  ) -> Any:
    """The learner on a network, with other options where it has them.

    Args:
      network: way, or None for a network without a head -> the network.
      way: classes of a task.
      **options: in place of those of `self.options`.
    """
    metric = "way" in _fields(self.kind)  # Compares features, has no head.
    chosen = {k: options.get(k, v) for k, v in self.options.items()}
    return self.kind(
        network(None if metric else way),
        **chosen | ({"way": way} if metric else {}),
    )


@functools.cache
def variants() -> tuple[Variant, ...]:
  """Every learner that is trained, in every order that it has."""
  found = []
  for kind, _, _, releases in learners.LEARNERS.values():
    if not releases:
      continue
    fields = _fields(kind)
    steps: dict[str, Any] = {}
    if "inner_steps" in fields:
      steps["inner_steps"] = 1
    if "order" not in fields:
      found.append(Variant(kind.__name__, kind, steps))
      continue
    switches = {kind.__name__: steps}
    if kind is learners.MAML:
      switches["MAML++"] = steps | dict(
          learned_rates=True, per_step_norm=True, loss_weights=(1.0,)
      )
    found += [
        Variant(f"{label}, {order} order", kind, options | {"order": order})
        for label, options in switches.items()
        for order in ("second", "first")
    ]
  return (*found, Variant("Supervised", learners.Supervised, {}))


def _fields(kind: type) -> list[str]:
  return [field.name for field in dataclasses.fields(kind)]


@functools.cache
def _network(norm: Any, way: int | None) -> models.Model:
  model = models.conv4(way, 4, norm, _SHAPE)
  # Traced once for all learners, instead of in every check.
  return model._replace(apply=jax.jit(model.apply))


# Clip units -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Unit:
  """A clip unit, and data that have it.

  Attributes:
    label: for the table.
    clip_unit: for the mechanism.
    hierarchy: what is sampled; its first stage is the one that varies.
    form: of the episode, or None.
    noisy: whether inner steps are noisy.
  """

  label: str
  clip_unit: str
  hierarchy: plan_lib.Hierarchy
  form: Any = None
  noisy: bool = False

  @functools.cached_property
  def dataset(self) -> data.ArrayDataset:
    """Black images."""
    rows = self.hierarchy.num_leaves
    return data.ArrayDataset(
        name="black",
        images=np.zeros((rows, *_SHAPE), np.uint8),
        hierarchy=self.hierarchy,
        labels=np.arange(rows) % WAY,
    )

  def plan(self, first: plan_lib.Stage) -> plan_lib.SamplingPlan:
    """That stage over fixed sizes."""
    episode = None
    if self.form == "independent":  # A task holds all classes drawn for it.
      way = self.hierarchy.num_units(0)
      if isinstance(first, plan_lib.FixedSize):
        first, way = plan_lib.FixedSize(WAY), WAY
      episode = plan_lib.Episode(way, 1, 2, self.form, tasks=2)
    elif self.form is not None:
      episode = plan_lib.Episode(WAY, 1, 2, self.form)
    below = (plan_lib.FixedSize(WAY), plan_lib.FixedSize(3))
    stages = (first, *below[3 - self.hierarchy.depth :])
    return plan_lib.SamplingPlan(stages, episode)

  def mechanism(
      self, learner: learners.Learner, **fields: Any
  ) -> plan_lib.Mechanism:
    """What is released; where inner steps are noisy, this learner's."""
    if self.noisy:
      fields = fields | dict(
          order=learner.order or "first",
          inner_steps=learner.inner_steps or 1,
          inner_clip_norm=1.0,
          inner_noise_multiplier=pages.NOISE,
      )
    return plan_lib.Mechanism(
        clip_unit=self.clip_unit, noise_multiplier=pages.NOISE, **fields
    )


@functools.cache
def units() -> tuple[Unit, ...]:
  """Everything that can have a clipped gradient of its own."""
  participants = plan_lib.Hierarchy.regular(
      (16, 8, 6), levels=("participant", "class", "image")
  )
  classes, few = (
      plan_lib.Hierarchy.regular((n, 6), levels=("class", "image"))
      for n in (16, 6)
  )
  forms = {"unit": participants, "disjoint": classes, "independent": few}
  noisy = "example with noisy inner steps"
  tasks = [
      Unit(
          "participant" if form == "unit" else f"episode ({form})",
          "participant" if form == "unit" else plan_lib.EPISODE,
          hierarchy, form,
      )
      for form, hierarchy in forms.items()
  ]
  examples = [
      Unit(f"{noisy} ({form})", "image", hierarchy, form, noisy=True)
      for form, hierarchy in forms.items()
  ]
  single = plan_lib.Hierarchy.regular((64,), levels=("image",))
  return (*tasks, *examples, Unit("example without a task", "image", single))


# Answers ----------------------------------------------------------------------

# Level -> epsilon, or why there is none.
Levels = Mapping[str, float | pages.Refusal]


@dataclasses.dataclass(frozen=True)
class Answer:
  """What training and accounting say.

  Attributes:
    training: None where `make_meta_step` makes a step, or its refusal.
    levels: what `accounting.guarantee` says of every level; empty where plan
      or mechanism cannot be made.
  """

  training: pages.Refusal | None
  levels: Levels

  @property
  def protected(self) -> dict[str, float]:
    """Level -> epsilon of a step that is made."""
    if self.training is not None:
      return {}
    return {
        level: found for level, found in self.levels.items()
        if not isinstance(found, pages.Refusal)
    }

  @property
  def refusal(self) -> pages.Refusal | None:
    """Why nothing is protected, or None."""
    if self.protected:
      return None
    return self.training or next(
        found for found in self.levels.values()
        if isinstance(found, pages.Refusal)
    )


def ask(
    variant: Variant,
    norm: str,
    unit: Unit,
    first: plan_lib.Stage,
    **clipping: Any,
) -> Answer:
  """Makes the plan, the guarantees and the step.

  Args:
    variant: the learner.
    norm: of its network.
    unit: what is clipped.
    first: how primary units are drawn.
    **clipping: further fields of the mechanism.
  """
  try:
    plan = unit.plan(first)
    way = plan.episode.way if plan.episode else WAY
    learner = variant.build(norm, way)
    mechanism = unit.mechanism(learner, **clipping)
  except pages.REFUSALS as e:
    return Answer(pages.Refusal.of(e), {})
  levels = _guarantees(unit.hierarchy, plan, mechanism)
  try:
    private.make_meta_step(
      learner,
      optax.sgd(1.0),
      unit.dataset,
      plan_lib.Release(unit.dataset.hierarchy, plan, mechanism),
    )
  except pages.REFUSALS as e:
    return Answer(pages.Refusal.of(e), levels)
  except ValueError as e:
    if str(e) != _without_parameters(learner):
      raise
    return Answer(pages.Refusal.of(e), levels)
  return Answer(None, levels)


def _without_parameters(learner: learners.Learner) -> str:
  """Why the learner is none for this network, or ""."""
  try:
    jax.eval_shape(learner.init, jax.random.key(0))
  except ValueError as e:
    return str(e)
  return ""


@functools.cache
def _guarantees(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
) -> Levels:
  found: dict[str, float | pages.Refusal] = {}
  for level in hierarchy.levels:
    try:
      g = accounting.guarantee(
        plan_lib.Release(hierarchy, plan, mechanism),
        steps=pages.STEPS,
        delta=pages.DELTA,
        level=level,
      )
    except pages.REFUSALS as e:
      found[level] = pages.Refusal.of(e)
      continue
    found[level] = (
        g.epsilon if math.isfinite(g.epsilon)
        else pages.Refusal(g.caveat or "epsilon is infinite", True)
    )
  return found
