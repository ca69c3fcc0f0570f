"""A run as its config describes it: read and checked once, then passed on."""

from collections.abc import Mapping
import copy
import dataclasses
import functools
import math
import os
from typing import Any, TypeAlias

import ml_collections

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import checks
from episodic_dp.config import learner_kinds
from episodic_dp.config import own_data
from episodic_dp.config import release as release_lib
from episodic_dp.config import sections
from episodic_dp.data.own_data import load as own_data_lib

Source: TypeAlias = ml_collections.ConfigDict | Mapping[str, Any]

_SECTIONS: dict[str, type[sections.Section]] = {
    cls.NAME: cls
    for cls in (
        sections.Data,
        sections.Model,
        sections.Learner,
        sections.Optimizer,
        sections.Augmentation,
        sections.Evaluation,
        sections.Compute,
        sections.FineTuning,
    )
}
# What a config that is trained has to say; one that is only accounted may not.
_TRAINED = (
    "data", "model", "learner", "optimizer", "evaluation", "compute", "seed",
    "checkpoint_every",
)
_RELEASED = ("hierarchy", "plan", "episode", "mechanism")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RunConfig:
  """Everything that a config says; made by `RunConfig.parse`.

  Attributes:
    source: the config as plain values, the hierarchy of own data filled in;
      `as_json` writes it, and a run is resumed only under an equal one.
    release: what a step samples and releases.
    steps: how many are asked for; `planned_steps` says how many are taken.
    delta: of the guarantees.
    target_epsilon: the budget, or None for no limit.
    privacy_unit: the level whose guarantee it limits, and which progress tells,
      or None for the primary level.
    seed: public, of the initial parameters.
    private_seed: None for a secret key.
    checkpoint_every: steps between checkpoints.
    private_diagnostics: whether the step leaves what no guarantee covers.
    data: which data set.
    model: the network.
    learner: what is trained.
    optimizer: the outer optimiser and its schedule.
    augmentation: of training images.
    evaluation: validation and test tasks.
    compute: how a step is computed.
    fine_tuning: of test tasks, for a learner of examples.
    survey: own data as they were listed for the hierarchy, or None.
  """

  source: Mapping[str, Any]
  release: plan_lib.Release
  steps: sections.Count
  delta: float
  target_epsilon: float | None = None
  privacy_unit: str | None = None
  seed: int = 0
  private_seed: int | None = None
  checkpoint_every: sections.Count = 25
  private_diagnostics: bool = False
  data: sections.Data
  model: sections.Model
  learner: sections.Learner
  optimizer: sections.Optimizer
  augmentation: sections.Augmentation
  evaluation: sections.Evaluation
  compute: sections.Compute
  fine_tuning: sections.FineTuning
  survey: own_data_lib.Survey | None = None

  @classmethod
  def parse(
      cls, config: Source, *, data_dir: str | os.PathLike[str] | None = None
  ) -> "RunConfig":
    """Reads and checks a config.

    Args:
      config: as the presets return it, or the plain values of a config.json.
      data_dir: of own data, which are listed where the config has no hierarchy:
        no image is decoded, and JAX is not imported.

    Raises:
      PlanError: a field is missing, unknown or wrong; one sentence.
      UnsoundPlanError: no proof covers what is described.
      FileNotFoundError, ValueError: own data cannot be listed; one sentence.
    """
    source = plain(config)
    survey = own_data.survey(source, data_dir)
    if survey is not None:
      source["hierarchy"] = own_data.hierarchy_section(survey, source)
    release = release_lib.plan_from_config(source)
    for name in ("steps", "delta"):
      if source.get(name) is None:
        raise plan_lib.PlanError(f"config.{name} is missing: set it")
    hints = {
        field.name: field.type
        for field in dataclasses.fields(cls)
        if field.name not in ("source", "release", "survey", *_SECTIONS)
    }
    known = (*hints, *_RELEASED, *_SECTIONS)
    for name in sorted(set(source) - set(known), key=str):
      raise plan_lib.PlanError(
          f"config.{name} is not read by anything: use {', '.join(known)}"
      )
    scalars = {
        name: sections.checked(name, source[name], hint)
        for name, hint in hints.items()
        if source.get(name) is not None
    }
    if not checks.is_delta(scalars["delta"]):
      raise plan_lib.PlanError(
          f"config.delta is {scalars['delta']}: give a number between 0 and 1,"
          " well below 1 / (number of units), such as --config.delta=1e-05"
      )
    target = scalars.get("target_epsilon")
    if target is not None and not target > 0:  # also refuses NaN
      raise plan_lib.PlanError(
          f"config.target_epsilon is {target}: give a positive number, such as"
          " --config.target_epsilon=3"
      )
    if "privacy_unit" in scalars:
      release.hierarchy.level_index(scalars["privacy_unit"])
    parsed: dict[str, Any] = {
        name: sections.parse(section, source)
        for name, section in _SECTIONS.items()
    }
    # Here, for commands that build nothing of them, such as account.
    for name, section in parsed.items():
      values = source.get(name)
      needed = section.needed(values) if values else ()
      if values and all(values.get(f) is not None for f in needed):
        section.check()
        if name == "learner":
          learner_kinds.check_name(section)
    return cls(
        source=source, release=release, survey=survey, **scalars, **parsed
    )

  @property
  def level(self) -> str:
    """The privacy unit: whose guarantee a target epsilon limits."""
    return self.privacy_unit or self.release.levels[0]

  @property
  def way(self) -> int:
    """The classes of a validation or test task.

    Raises:
      PlanError: the config does not say, or says two things.
    """
    return release_lib.way_of(self.source)

  @functools.cached_property
  def planned_steps(self) -> int:
    """The steps asked for, or fewer where the target would be passed.

    Raises:
      PlanError: not even one step is within the target.
      UnsoundPlanError: the target's level has no guarantee.
    """
    return accounting.planned_steps(
        self.release,
        steps=self.steps,
        delta=self.delta,
        target_epsilon=self.target_epsilon,
        level=self.privacy_unit,
    )

  def check_complete(self) -> None:
    """Refuses what cannot be trained, before there are data.

    Raises:
      PlanError: names what is missing, or what does not go together.
    """
    for name in _TRAINED:
      if self.source.get(name) is None:
        raise plan_lib.PlanError(
            f"config.{name} is missing: a run needs it, see"
            " episodic_dp/config/defaults.py"
        )
    learner_kinds.check(self.learner, self.release.plan.episode, self.way)
    for name, section in _SECTIONS.items():
      values = self.source.get(name) or {}
      for field in section.needed(values):
        if values.get(field) is None:
          raise plan_lib.PlanError(f"config.{name}.{field} is missing: set it")

  def with_changes(self, changes: Mapping[str, Any]) -> "RunConfig":
    """The config with other values, parsed anew.

    Args:
      changes: name -> value, such as {"evaluation.test_tasks": 60}.
    """
    source = copy.deepcopy(dict(self.source))
    for name, value in changes.items():
      *sections_, last = name.split(".")
      where = source
      for section in sections_:
        where = where.setdefault(section, {})
      where[last] = value
    return RunConfig.parse(source)

  def as_json(self) -> dict[str, Any]:
    """Nested plain values; infinity becomes the string "inf"."""
    return clean(self.source)


def plain(config: Source) -> dict[str, Any]:
  """Dicts in place of ConfigDicts, all the way down."""
  if isinstance(config, ml_collections.ConfigDict):
    config = config.to_dict()
  return copy.deepcopy(dict(config))


def clean(value: Any) -> Any:
  """Plain values for JSON; infinity becomes the string "inf"."""
  if isinstance(value, Mapping):
    return {str(k): clean(v) for k, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [clean(v) for v in value]
  if isinstance(value, float) and math.isinf(value):
    return "inf"
  return value
