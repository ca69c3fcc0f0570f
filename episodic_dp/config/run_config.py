"""The config of a run, read and checked once."""

from collections.abc import Mapping
import dataclasses
import functools
import os
from typing import Any, Literal, TypeAlias

from absl import logging
import ml_collections
import numpy as np

from episodic_dp import _validate
from episodic_dp import data as data_lib
from episodic_dp import errors
from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan as plan_lib
from episodic_dp.data import dataset
from episodic_dp.data.own_data import load as own_data
from episodic_dp.output import phases
from episodic_dp.plan import release as release_lib
from episodic_dp.plan import stages as stages_lib
from episodic_dp.plan import validation

Source: TypeAlias = ml_collections.ConfigDict | Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
  """The data set.

  Attributes:
    name: cifar_fs, glyphs, mini_imagenet, mnist_writers, omniglot, own_data or
      sinusoid.
    options: options of the data set, such as its seed.
    shape: shape of an example; a run records it.
    dtype: type of the stored examples; a run records it.
    validation_digest: digest of the public validation data; a run records it.
    survey: listed own data, or None.
  """

  name: str = ""
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  shape: tuple[int, ...] | None = None
  dtype: Literal["uint8", "float32"] | None = None
  validation_digest: str | None = None
  survey: own_data.Survey | None = dataclasses.field(
      default=None, compare=False, repr=False, metadata={"plain": False}
  )

  def load(
      self,
      *,
      data_dir: str | os.PathLike[str] | None = None,
      download: bool = False,
  ) -> data_lib.Splits:
    """Load the data set by `data.load`; own data are not listed again."""
    return data_lib.load(
        self.name,
        data_dir=data_dir,
        download=download,
        surveyed=self.survey,
        **self.options,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
  """The sampling of units; see `plan.SamplingPlan`.

  Attributes:
    stages: stages of sampling, the primary units first.
    allow_short_units: whether a unit may hold fewer children than its stage
      samples.
  """

  stages: tuple[plan_lib.Stage, ...]
  allow_short_units: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
  """All fields of a config; `RunConfig.parse` reads and checks them.

  Attributes:
    steps: number of training steps.
    delta: δ of the guarantees, above 0 and below 1; None for the largest power
      of ten below 1 / (10 N), for N units of the privacy unit.
    plan: sampling of the units.
    episode: tasks that the sampled examples form; None for example-level
      training.
    mechanism: clipping and noise of a step.
    hierarchy: tree of the training data; own data fill it in.
    privacy_unit: level of the displayed ε; None for the primary level.
    seed: public seed of the initial parameters.
    private_seed: seed of the sampling and the noise; None for a secret key. A
      fixed seed makes a run reproducible and its guarantee void for anyone who
      knows it.
    checkpoint_every: number of steps between checkpoints.
    private_diagnostics: whether the training loss and other metrics, which no
      guarantee covers, are recorded in WORKDIR/private.
    data: data set.
    model: network.
    learner: learner.
    optimizer: outer optimizer and its schedule.
    augmentation: random changes of training images.
    evaluation: validation and test tasks.
    compute: placement of a step on devices.
    fine_tuning: training of a new head for test tasks, with
      learner.name=supervised.
  """

  steps: plain.Count
  plan: Plan
  mechanism: plan_lib.Mechanism
  delta: plain.Fraction | None = None
  episode: plan_lib.Episode | None = None
  hierarchy: release_lib.Tree | None = None
  privacy_unit: str | None = None
  seed: int = 0
  private_seed: int | None = None
  checkpoint_every: plain.Count = 25
  private_diagnostics: bool = False
  data: Data = Data()
  model: options.Network = options.Network()
  learner: options.Learner = options.Learner()
  optimizer: options.Optimizer = options.Optimizer()
  augmentation: options.Augmentation = options.Augmentation()
  evaluation: options.Evaluation = options.Evaluation()
  compute: options.Compute = options.Compute()
  fine_tuning: options.FineTuning = options.FineTuning()

  @classmethod
  def parse(
      cls, config: Source, *, data_dir: str | os.PathLike[str] | None = None
  ) -> "RunConfig":
    """Read and check a config.

    Args:
      config: the ConfigDict of a preset, or the content of a config.json.
      data_dir: own data, which are listed if the config has no hierarchy; no
        image is decoded, and JAX is not imported.

    Raises:
      PlanError: a field is missing, unknown or wrong.
      UnsoundPlanError: no proof covers the plan.
      FileNotFoundError, ValueError: own data cannot be listed.
    """
    found = plain.from_plain(
        cls, as_mapping(config), name="config", partial=True
    )
    data_lib.check_data_dir(found.data.name, data_dir)
    if found.hierarchy is None and found.data.name == "own_data":
      chosen = data_lib.read_options("own_data", found.data.options)
      with phases.phase("listing the data"):
        survey = own_data.survey(data_dir, chosen)
      found = dataclasses.replace(
          found,
          data=dataclasses.replace(found.data, survey=survey),
          hierarchy=_tree_of(survey, found),
          model=found.model.with_start(own_data.channels(survey, chosen)),
      )
      _check_test_tasks(survey, found.task)
      if found.episode is not None:  # While its units have names.
        validation.validate(survey.hierarchies["train"], found.sampling_plan)
    hierarchy = found.release.hierarchy
    units = hierarchy.num_units(hierarchy.level_index(found.level))
    if found.delta is None:
      # The largest power of ten below 1 / (10 n): 10**digits is above 10 n.
      delta = float(f"1e-{len(str(10 * units))}")
      found = dataclasses.replace(found, delta=delta)
    return found

  @classmethod
  def read(
      cls,
      workdir: str | os.PathLike[str],
      *,
      data_dir: str | os.PathLike[str] | None = None,
  ) -> "RunConfig":
    """Read the config of the run in a work directory, checked and complete.

    Args:
      workdir: folder of a run.
      data_dir: own data, which are listed for a config without a hierarchy.

    Raises:
      RunError: there is no run, or its config.json is damaged.
      PlanError, UnsoundPlanError: its config.json was changed.
    """
    # Lazy import: the package of the work directory needs JAX.
    from episodic_dp.training import workdir as workdir_lib

    config = cls.parse(workdir_lib.read_config(workdir), data_dir=data_dir)
    config.check_complete()
    return config

  @functools.cached_property
  def sampling_plan(self) -> plan_lib.SamplingPlan:
    """Return the stages and the episode."""
    return plan_lib.SamplingPlan(
        self.plan.stages,
        episode=self.episode,
        allow_short_units=self.plan.allow_short_units,
    )

  @functools.cached_property
  def release(self) -> plan_lib.Release:
    """Return the sampling plan and the mechanism of a step.

    Raises:
      PlanError: the config has no hierarchy.
      UnsoundPlanError: no proof covers it.
    """
    if self.hierarchy is None:
      raise errors.PlanError(
          "config.hierarchy is missing: give levels and sizes, such as"
          " levels=('class', 'drawing') and sizes=(1150, 20)"
      )
    return plan_lib.Release(
        self.hierarchy.build(), self.sampling_plan, self.mechanism
    )

  @property
  def level(self) -> str:
    """Return the privacy unit: the level whose epsilon is shown."""
    return self.privacy_unit or self.release.levels[0]

  @property
  def way(self) -> int:
    """Return the number of classes of a validation or test task.

    Raises:
      PlanError: the config does not state it, or states two values.
    """
    trained = self.episode.way if self.episode is not None else None
    way = self.evaluation.way or trained
    if way is None or trained not in (way, None):
      raise _validate.refusal(
          "config.evaluation.way", self.evaluation.way,
          f"the classes of a task (config.episode.way={trained})",
      )
    return way

  @property
  def task(self) -> dict[str, Any]:
    """Return the arguments of `plan.validation.task_plan` for a test task."""
    return dict(
        way=self.way,
        shot=self.evaluation.shot,
        query=self.evaluation.query,
        classes=self.episode.classes if self.episode is not None else None,
    )

  @property
  def outputs(self) -> int | None:
    """Return the outputs of the network; None for features without a head."""
    network, learner = self.model, self.learner
    flexible = network.is_own or network.name == "mlp"
    if network.outputs is not None and (
        flexible or learner.name == options.SUPERVISED
    ):
      return network.outputs
    if learner.name in ("protonet", "ridge"):
      return network.widths[-1] if network.name == "mlp" else None
    return self.way

  def check_complete(self) -> None:
    """Refuse a config that cannot be trained, before any data are read.

    Raises:
      PlanError: names the field.
    """
    name, way = self.learner.name, self.way
    if (self.episode is None) != (name == options.SUPERVISED):
      raise _validate.refusal(
          "config.learner.name", name,
          "supervised, which learns single examples, without config.episode,"
          " and a learner that learns from tasks with it",
      )
    if way == 1 and name not in options.BY_GRADIENTS:
      raise _validate.refusal(
          "config.learner.name", name,
          "maml or another with gradient steps for regression (way=1)",
      )
    if name == options.SUPERVISED and self.model.outputs is None:
      raise errors.PlanError(
          "config.model.outputs is missing: set it to the number of training"
          " classes, which learner.name=supervised separates"
      )
    if self.model.start is None and self.model.trained != "all":
      raise _validate.refusal(
          "config.model.trained", self.model.trained,
          "all without public weights (--config.model.start=FILE)",
      )
    if self.optimizer.warm_up >= self.steps:
      raise _validate.refusal(
          "config.optimizer.warm_up", self.optimizer.warm_up,
          f"less than {self.steps} steps",
      )

  def with_changes(self, changes: Mapping[str, Any]) -> "RunConfig":
    """Return the config with changed values, checked again.

    Args:
      changes: name -> value, such as {"evaluation.test_tasks": 60}.
    """
    source = self.as_json()
    for name, value in changes.items():
      set_field(source, name, value)
    return RunConfig.parse(source)

  def as_json(self) -> dict[str, Any]:
    """Return every field as plain data for JSON; infinity is "inf"."""
    return dict(plain.to_plain(self))


def as_mapping(config: Source) -> dict[str, Any]:
  """Return nested dicts instead of ConfigDicts."""
  if isinstance(config, ml_collections.ConfigDict):
    config = config.to_dict()
  return dict(config)


def set_field(source: dict[str, Any], name: str, value: Any) -> None:
  """Set a field of nested dicts, such as "mechanism.clip_norm".

  A text given for a list is its only element.
  """
  *sections, last = name.split(".")
  for section in sections:
    if not isinstance(source.get(section), dict):
      source[section] = {}
    source = source[section]
  if isinstance(value, str) and isinstance(source.get(last), (list, tuple)):
    value = [value]
  source[last] = value


def _tree_of(found: own_data.Survey, config: RunConfig) -> release_lib.Tree:
  """Return the tree of own training data; PlanError for ambiguous names."""
  training, plan = found.hierarchies["train"], config.sampling_plan
  if plan.episode is None:  # Single images are learned, by their classes.
    training = dataset.flattened(training)
  else:
    _check_names(training, plan)
  return release_lib.Tree.of(training)


def _check_test_tasks(found: own_data.Survey, task: Mapping[str, Any]) -> None:
  """Refuse public parts of own data without test tasks; count their units."""
  for part in ("validation", "test"):
    tree = found.hierarchies[part]
    try:
      _, fitting = validation.task_plan(tree, **task)
    except plan_lib.PlanError as e:
      raise plan_lib.PlanError(
          f"the {part} part of {found.listing.source} does not suit the"
          f" test tasks: it holds {tree}, and a task takes {task['way']}"
          f" classes with {task['shot'] + task['query']} examples each; give it"
          " larger units, or ask for less by config.evaluation.shot and query,"
          " or by way after --config=own_data:"
      ) from e
    units, held, level = fitting.num_units(0), tree.num_units(0), tree.levels[0]
    if units < held or units == 1:
      logging.warning(
          "%d of %d units of level '%s' in the %s part can fill a task:"
          " accuracy is measured on these alone, and a single one says little"
          " about others", units, held, level, part,
      )


def _check_names(
    training: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> None:
  """Raise PlanError if a name in several classes may be one unit."""
  if stages_lib.class_level(training, plan) or training.depth < 3:
    return
  assert training.names is not None and training.names[1] is not None
  names, counts = np.unique(training.names[1], return_counts=True)
  if counts.max() > 1 and not training.copies:
    of, level = training.levels[:2]
    raise plan_lib.PlanError(
        f"{level} {errors.shown(str(names[counts.argmax()]))} is in"
        f" {counts.max()} units of level '{of}': if it is one {level}, add"
        f" --config.data.options.crossing={level}; otherwise give every {level}"
        " a separate name"
    )
