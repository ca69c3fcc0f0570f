"""Configs become objects, and what is accounted is what is sampled."""

import math

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp import learners
from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.config import build
from episodic_dp.config import learners as config_learners
from episodic_dp.config import RunConfig
from episodic_dp.config import saved
from episodic_dp.config.presets import glyphs
from episodic_dp.config.presets import omniglot
from episodic_dp.output import files
from episodic_dp.training import workdir

SMALL = "participants=40,size=16,width=4,steps=5"


def _config(text=SMALL, **options):
  config = glyphs.get_config(text)
  config.data.options.validation_participants = 4
  config.data.options.test_participants = 4
  config.evaluation.validation_tasks = 4
  for name, value in options.items():
    config[name] = value
  return RunConfig.parse(config)


@pytest.fixture(scope="module")
def splits():
  return build.load_data(_config(), data_dir=None)


def test_the_job_is_what_the_config_says(splits):
  spec = build.build(_config(), splits=splits).spec
  release = _config().release
  assert spec.release.plan == release.plan
  assert spec.release.mechanism == release.mechanism
  assert spec.train.hierarchy.sizes == (40, 8, 5)
  assert spec.release.hierarchy.same_tree(spec.train.hierarchy)
  assert (spec.steps, spec.asked_steps) == (5, 5)
  assert spec.learner.model.input_shape == (16, 16, 1)
  assert spec.validation.rows.shape[:2] == (4, 5)


def test_data_of_other_sizes_than_described_are_refused(splits):
  config = _config("participants=41,size=16")
  with pytest.raises(training.RunError, match="41 participant.*40 participant"):
    build.build(config, splits=splits)


@pytest.mark.parametrize(
    "other",
    [
        plan.Hierarchy.regular((2, 3), levels=("a", "c")),
        plan.Hierarchy.regular((3, 2), levels=("a", "b")),
        plan.Hierarchy.regular((2, 3), levels=("a", "b"), copies=True),
        plan.Hierarchy.from_sizes([3, 4], levels=("a", "b")),
        # The same number of units on each level, in other families.
        plan.Hierarchy.from_sizes([2, 4], levels=("a", "b")),
    ],
)
def test_any_difference_of_hierarchies_is_seen(other):
  described = plan.Hierarchy.regular((2, 3), levels=("a", "b"))
  same = plan.Hierarchy.from_sizes([3, 3], levels=("a", "b"))
  build.check_same_tree(described, same)
  with pytest.raises(training.RunError, match="another sampler"):
    build.check_same_tree(described, other)


def test_families_of_other_frequency_are_seen():
  # As many units, in families of the same sizes, but not as often.
  described = plan.Hierarchy.from_sizes([1, 1, 2, 3, 3], levels=("a", "b"))
  other = plan.Hierarchy.from_sizes([1, 2, 2, 2, 3], levels=("a", "b"))
  with pytest.raises(training.RunError, match="another sampler"):
    build.check_same_tree(described, other)


@pytest.fixture(scope="module")
def shared():
  """Participants who share images, and the true counts."""
  hierarchy, rows = sampling.synthetic_participants(
      0, participants=50, classes=4, examples_per_class=5, way=2, per_class=2
  )
  images = np.zeros((20, 4, 4, 1), np.uint8)
  train = data.ArrayDataset(
      name="shared",
      images=images,
      hierarchy=hierarchy,
      rows=rows,
      count_copies=rows.most_copies,
  )
  return train, rows.most_copies()


def _stating(train, **counts):
  return plan.Hierarchy.regular(
      train.hierarchy.sizes,
      levels=train.hierarchy.levels,
      copies=True,
      most_copies={level.rstrip("_"): n for level, n in counts.items()} or None,
  )


def test_stated_counts_of_copies_reach_the_guarantee(shared):
  train, true = shared
  assert build.with_copies(train, _stating(train)) is train
  described = _stating(train, class_=true["class"], image=true["image"] + 1)
  found = build.with_copies(train, described)
  build.check_same_tree(described, found.hierarchy)
  assert found.hierarchy.most_copies == (1, true["class"], true["image"] + 1)
  assert found.hierarchy.same_tree(described)
  only = build.with_copies(train, _stating(train, image=true["image"]))
  assert only.hierarchy.most_copies == (1, 0, true["image"])


def test_stated_counts_of_copies_do_not_hide_other_sizes(shared):
  train, true = shared
  first, *others = train.hierarchy.sizes
  other = plan.Hierarchy.regular(
      (first + 1, *others),
      levels=train.hierarchy.levels,
      copies=True,
      most_copies=true,
  )
  with pytest.raises(training.RunError, match="of another sampler"):
    build.check_same_tree(other, build.with_copies(train, other).hierarchy)


def test_counts_of_copies_that_are_too_small_are_refused(shared, splits):
  train, true = shared
  for level in true:
    wrong = {level + "_": true[level] - 1}
    with pytest.raises(
        plan.PlanError,
        match=f"{true[level] - 1} of level '{level}'.*state {true[level]}",
    ):
      build.with_copies(train, _stating(train, **wrong))
  with pytest.raises(training.RunError, match="cannot be checked"):
    build.with_copies(splits.train, _stating(train, image=9))


def test_budget_shortens_the_run_and_its_schedule(splits):
  free = build.build(_config(SMALL + "000"), splits=splits).spec
  config = _config(SMALL + "000", target_epsilon=3.0)
  bound = build.build(config, splits=splits).spec
  assert bound.asked_steps == free.steps == 5000
  assert 1 <= bound.steps < 5000
  changed = config.with_changes({"optimizer.name": "sgd"})
  optimizer = config_learners.make_optimizer(changed, bound.steps)
  gradient, sizes = np.ones(()), []
  state = optimizer.init(gradient)
  for _ in range(bound.steps + 1):
    update, state = optimizer.update(gradient, state)
    sizes.append(-float(update))
  rates = config.optimizer.rate, config.optimizer.final_rate
  assert (sizes[0], sizes[-1]) == pytest.approx(rates)


def _learner(**options):
  config = _config().with_changes(
      {f"learner.{name}": value for name, value in options.items()}
  )
  config.check_complete()
  return config_learners.make_learner(config, (16, 16, 1))


TRAINED = [name for name in learners.LEARNERS if name != "fine_tuning"]


@pytest.mark.parametrize("name", TRAINED)
def test_every_learner_that_is_trained_can_be_named(name):
  found = learners.describe(_learner(name=name, order="first"))
  assert found.name == name
  assert found.inner_steps in (1, None)  # The config's number, where read.
  assert found.transductive  # Its norm is "batch".


def test_options_reach_the_learner():
  ridge = _learner(name="ridge", ridge=3.0, ridge_scale=2.0)
  assert (ridge.ridge, ridge.scale, ridge.way) == (3.0, 2.0, 5)
  assert ridge.model.way == 4  # Features, not classes.
  anil = _learner(
      name="anil", inner_steps=2, learned_rates=True, multi_step_loss=10
  )
  assert anil.learned_rates and not anil.per_step_norm
  assert anil.at_step(0).loss_weights.tolist() == [0.5, 0.5]
  plain = _learner()
  assert plain == learners.MAML(plain.model, inner_steps=1, inner_rate=0.1)


@pytest.mark.parametrize("private", [0, 1])
def test_configs_survive_the_work_directory(private, tmp_path):
  config = RunConfig.parse(omniglot.get_config(f"private={private}"))
  files.write_json(tmp_path / workdir.CONFIG, config.as_json())
  again = saved.read(tmp_path)
  assert again == config
  assert math.isinf(again.release.mechanism.clip_norm) == (not private)
  assert plan.to_dict(config.release) == plan.to_dict(again.release)
  content = config.as_json() | {"model": {"widht": 3}}
  files.write_json(tmp_path / workdir.CONFIG, content)
  with pytest.raises(plan.PlanError, match="config.model.widht"):
    saved.read(tmp_path)


@pytest.mark.parametrize("download", [False, True])
def test_the_source_of_the_data_reaches_the_loader(monkeypatch, download):
  def load(options, where):
    raise ConnectionError(
        f"{where.data_dir} {where.download} {options.participants}"
    )

  monkeypatch.setattr("episodic_dp.data.omniglot.load", load)
  with pytest.raises(ConnectionError, match=f"here {download} 400000"):
    build.build(
        RunConfig.parse(omniglot.get_config()),
        data_dir="here",
        download=download,
    )
