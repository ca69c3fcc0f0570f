"""From a RunConfig to the objects of the library.

The release was described by the config, which the accountant reads too: what is
accounted is what is sampled. Here the data are loaded beside it, and a
hierarchy that differs from the one described is refused.
"""

import dataclasses
import os

from episodic_dp import data
from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp import training
from episodic_dp.config import fitting
from episodic_dp.config import learners
from episodic_dp.config import networks
from episodic_dp.config.run_config import RunConfig
from episodic_dp.data.own_data import load as own_data
from episodic_dp.training import evaluation


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
  """What a config describes: a run, and the data to test it on."""

  spec: training.TrainingSpec
  splits: data.Splits
  config: RunConfig


def build(
    config: RunConfig,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    splits: data.Splits | None = None,
    evaluator: training.Evaluator | None = None,
) -> Experiment:
  """Loads the data and builds everything that a run needs.

  Args:
    config: parsed; of own data with the same data_dir.
    data_dir: folder of the data sets that are not built in, or own data.
    download: fetch what data_dir does not have.
    splits: the data, where they are loaded already.
    evaluator: of an equal learner, so that it is compiled once for both.

  Raises:
    PlanError, UnsoundPlanError, RunError, ValueError, FileNotFoundError: one
      sentence with the remedy.
  """
  # What needs no data comes first: a mistake in it ends the run here.
  check(config)
  steps = config.planned_steps
  splits = splits or load_data(config, data_dir=data_dir, download=download)
  splits = dataclasses.replace(splits, train=_training_data(config, splits))
  shape = splits.train.image_shape
  learner = learners.make_learner(config, shape)
  evaluated = learners.make_evaluation_learner(config, learner, shape)
  spec = training.TrainingSpec(
      train=splits.train,
      validation=draw_tasks(config, splits.validation, test=False),
      release=config.release,
      learner=learner,
      optimizer=learners.make_optimizer(config, steps),
      steps=steps,
      asked_steps=config.steps,
      privacy_unit=config.privacy_unit,
      delta=config.delta,
      seed=config.seed,
      private_seed=config.private_seed,
      compute=_compute(config),
      devices=config.compute.devices,
      evaluate_every=config.evaluation.every,
      checkpoint_every=config.checkpoint_every,
      evaluator=evaluator or training.Evaluator(evaluated),
      config=networks.recorded(config, learner.model),
  )
  return Experiment(spec=spec, splits=splits, config=config)


def check(config: RunConfig) -> None:
  """Refuses what `build` would, as far as that needs no data.

  Raises:
    PlanError, UnsoundPlanError, RunError, ValueError: one sentence.
  """
  config.check_complete()
  _check_single_level(config)
  networks.check(config.model)
  networks.make_augmentation(config)
  if config.survey is not None:
    _check_evaluation(config, config.survey)


def load_data(
    config: RunConfig,
    *,
    data_dir: str | os.PathLike[str] | None,
    download: bool = False,
) -> data.Splits:
  """The splits that `config.data` names; own data are not listed again."""
  return data.load(
      config.data.name,
      data_dir=data_dir,
      download=download,
      surveyed=config.survey,
      **config.data.options,
  )


def draw_tasks(
    config: RunConfig, dataset: data.Dataset, *, test: bool
) -> evaluation.Tasks:
  """The fixed validation or test tasks of the config."""
  options = config.evaluation
  return training.draw(
      dataset,
      way=config.way,
      shot=options.shot,
      query=options.query,
      classes=_classes(config, dataset.hierarchy),
      count=options.test_tasks if test else options.validation_tasks,
      seed=options.seed + int(test),
  )


def _classes(
    config: RunConfig, hierarchy: plan_lib.Hierarchy
) -> str | None:
  """The level of a test task's classes: that of training, where it is there."""
  episode = config.release.plan.episode
  found = episode.classes if episode is not None else None
  return found if found in hierarchy.levels else None


def _compute(config: RunConfig) -> private.Compute:
  compute = private.Compute(
      diagnostics=bool(config.private_diagnostics),
      noise_terms=config.compute.noise_terms or 1,
  )
  size = config.compute.microbatch_size
  if size is None:  # What the device suits.
    return compute
  return dataclasses.replace(compute, microbatch_size=size)


def _check_single_level(config: RunConfig) -> None:
  """RunError for examples that are learned one by one, and lie in a tree."""
  hierarchy = config.release.hierarchy
  if config.release.plan.episode is None and hierarchy.depth > 1:
    raise errors.RunError(
        f"config.hierarchy has the levels {hierarchy.levels} and there is no"
        " episode: every example is a unit of its own then, so give one level,"
        f" levels=({hierarchy.levels[-1]!r},) and sizes="
        f"({hierarchy.num_leaves},), and one stage"
    )


def _check_evaluation(config: RunConfig, found: own_data.Survey) -> None:
  """PlanError where own data are too few for validation and test tasks."""
  for part in ("validation", "test"):
    try:
      plan_lib.task_plan(
          found.hierarchies[part],
          way=config.way,
          shot=config.evaluation.shot,
          query=config.evaluation.query,
          classes=_classes(config, found.hierarchies[part]),
      )
    except plan_lib.PlanError as e:
      raise fitting.refused(found, config.source, part, e) from e


def _training_data(config: RunConfig, splits: data.Splits) -> data.ArrayDataset:
  """The training data as the release describes them."""
  train, release = splits.train, config.release
  if release.plan.episode is None:
    train = data.as_examples(train)
  train = with_copies(train, release.hierarchy)
  check_same_tree(release.hierarchy, train.hierarchy)
  return dataclasses.replace(train, resident=config.compute.resident)


def check_same_tree(
    described: plan_lib.Hierarchy, loaded: plan_lib.Hierarchy
) -> None:
  """Refuses data whose sizes differ from those that are accounted.

  Raises:
    RunError: one sentence with both.
  """
  if not described.same_tree(loaded):
    raise errors.RunError(
        f"the config describes {described} and the data are {loaded}: the"
        " guarantee would be of another sampler; make config.hierarchy and"
        " config.data.options agree"
    )


def with_copies(
    train: data.ArrayDataset, described: plan_lib.Hierarchy
) -> data.ArrayDataset:
  """The data with the counts of copies that the config states, once counted.

  Raises:
    PlanError: a record recurs more often than is stated.
    RunError: the data cannot be counted.
  """
  if described.most_copies in (None, train.hierarchy.most_copies):
    return train
  if train.count_copies is None:
    raise errors.RunError(
        f"most_copies {described.most_copies} cannot be checked: the data"
        f" '{train.name}' are no synthetic participants; leave it out"
    )
  found = train.count_copies()
  for level, stated in zip(described.levels, described.most_copies):
    if 0 < stated < found.get(level, 1):
      raise plan_lib.PlanError(
          f"most_copies {stated} of level '{level}' is too small: one {level}"
          f" is held by {found[level]} units of level"
          f" '{described.levels[0]}'; state {found[level]}"
      )
  counted = dataclasses.replace(
      train.hierarchy, most_copies=described.most_copies
  )
  return dataclasses.replace(train, hierarchy=counted)
