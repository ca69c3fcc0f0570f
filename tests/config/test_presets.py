"""The shipped configs describe sound plans, as their papers and docstrings."""

import importlib
import re

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import plan
from episodic_dp.config import presets
from episodic_dp.plan import validation

NAMES = sorted({*presets.NAMES} - {"own_data"})
# Presets without an argument `shot`.
FIXED = ("glyphs", "glyphs_supervised", "omniglot", "sinusoid")


def module(name):
  return importlib.import_module(f"episodic_dp.config.presets.{name}")


def parsed(name, text=""):
  return presets.load(f"{name}:{text}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["", "private=0,shot=2"])
def test_configs_describe_a_valid_plan(name, text):
  config = parsed(name, "private=0" if text and name in FIXED else text)
  config.check_complete()
  plan.validate(config.release.hierarchy, config.release.plan)
  assert config.release.mechanism.guaranteed == (not text)
  if config.plan.episode is not None:
    assert config.evaluation.shot == config.plan.episode.shot
  assert config.way == (1 if name == "sinusoid" else 5)


@pytest.mark.parametrize("name", presets.NAMES)
def test_docstrings_name_every_argument(name):
  with pytest.raises(plan.PlanError) as e:
    parsed(name, "?")
  listed = re.search(r"some of (.*), separated", str(e.value)).group(1)
  documented = module(name).__doc__.split("Arguments after the colon:")[1]
  for item in listed.split(", "):
    argument, default = item.split("=")
    default = {"True": "1", "False": "0", "": "the"}.get(default, default)
    pattern = rf"\b{argument}\s\({re.escape(default)}\b"
    assert re.search(pattern, documented), item


@pytest.mark.parametrize(
    "name, text, sizes, tasks, epsilon",
    [
        ("omniglot", "", (400_000, 5, 2), 1600, 0.4984),
        ("cifar_fs", "shot=5", (400_000, 5, 20), 1600, 0.4984),
        ("mini_imagenet", "shot=5", (100_000, 5, 20), 1600, None),
        ("cifar_fs_supervised", "", (38_400,), None, 1.492),
    ],
)
def test_plans_of_the_papers(name, text, sizes, tasks, epsilon):
  config = parsed(name, text)
  hierarchy, described = config.release.hierarchy, config.release.plan
  assert hierarchy.sizes == sizes
  if tasks is not None:
    assert plan.tasks_per_step(hierarchy, described) == pytest.approx(tasks)
    assert config.mechanism.noise_multiplier == 1
  else:
    found = validation.examples_per_step(hierarchy, described)
    assert found == pytest.approx(2000)
    assert (config.steps, config.mechanism.noise_multiplier) == (1920, 6)
  if epsilon is not None:
    spent = accounting.guarantee(
        config.release, steps=config.steps, delta=config.delta,
        level=config.level,
    )
    assert spent.epsilon == pytest.approx(epsilon, abs=1e-3)


@pytest.mark.parametrize(
    "name, units, level, rate, too_much",
    [
        ("omniglot_alphabets", [30, 964, 19_280], "drawing",
         0.27 * 5 / 14 * 2 / 20, "way=15"),
        ("cifar_fs_superclasses", [20, 64, 38_400], "image",
         10 / 20 * 1 / 2 * 2 / 600, "classes=3"),
    ],
)
def test_plans_of_three_stages(name, units, level, rate, too_much):
  release = parsed(name).release
  hierarchy = release.hierarchy
  assert [hierarchy.num_units(k) for k in range(3)] == units
  found = plan.inclusion_rate(hierarchy, release.plan, level)
  assert found == pytest.approx(rate)
  with pytest.raises(plan.PlanError, match="of level '(character|class)'"):
    parsed(name, too_much).resolved()


def test_omniglot_takes_counts_of_copies_and_any_way():
  config = parsed(
      "omniglot",
      "participants=1000,way=20,query=2,class_copies=98,image_copies=20",
  )
  assert config.release.hierarchy.most_copies == (1, 98, 20)
  assert config.plan.episode.way == config.data.options["way"] == 20
  assert config.data.options["per_class"] == 3
  # The known ones are of other numbers of images.
  assert parsed("omniglot", "way=20").hierarchy.most_copies is None
  assert parsed("omniglot").hierarchy.most_copies == (1, 1881, 228)


@pytest.mark.slow  # Prepares and reads archives of up to a gigabyte.
@pytest.mark.parametrize(
    "name, text",
    [
        ("cifar_fs", "participants=100,query=1"),
        ("cifar_fs_superclasses", ""),
        ("cifar_fs_supervised", ""),
        ("mini_imagenet", "participants=100,query=1"),
        ("mnist_writers", "shot=5,query=1"),
        ("omniglot_alphabets", ""),
    ],
)
def test_real_data_have_the_hierarchy_that_is_described(name, text, real_data):
  config = parsed(name, text)
  splits = config.data.load(data_dir=real_data)
  train = splits.train
  if config.plan.episode is None:
    train = data.as_examples(train)
    assert len(np.unique(train.labels)) == config.model.outputs
  assert config.release.hierarchy.same_tree(train.hierarchy)
  for part in (splits.validation, splits.test):
    validation.task_plan(  # Raises where such tasks cannot be drawn.
        part.hierarchy, way=config.way, shot=config.evaluation.shot,
        query=config.evaluation.query,
    )
