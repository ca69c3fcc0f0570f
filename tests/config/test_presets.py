"""The shipped configs can be described, and say what they do."""

import os
import re

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp import plan
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import cifar_fs
from episodic_dp.config.presets import cifar_fs_superclasses
from episodic_dp.config.presets import cifar_fs_supervised
from episodic_dp.config.presets import glyphs
from episodic_dp.config.presets import glyphs_sample_level
from episodic_dp.config.presets import glyphs_supervised
from episodic_dp.config.presets import mini_imagenet
from episodic_dp.config.presets import mnist_writers
from episodic_dp.config.presets import omniglot
from episodic_dp.config.presets import omniglot_alphabets
from episodic_dp.config.presets import omniglot_characters
from episodic_dp.config.presets import sinusoid

MODULES = (
    cifar_fs,
    cifar_fs_superclasses,
    cifar_fs_supervised,
    glyphs,
    glyphs_sample_level,
    glyphs_supervised,
    mini_imagenet,
    mnist_writers,
    omniglot,
    omniglot_alphabets,
    omniglot_characters,
    sinusoid,
)


def _id(module):
  return module.__name__.rsplit(".", 1)[1]


@pytest.mark.parametrize("module", MODULES, ids=_id)
@pytest.mark.parametrize("text", ["", "private=0,shot=2"])
def test_configs_describe_a_valid_plan(module, text):
  if "shot" in text and module in (
      glyphs, glyphs_supervised, omniglot, sinusoid
  ):
    text = "private=0"
  config = module.get_config(text)
  release = RunConfig.parse(config).release
  hierarchy, described = release.hierarchy, release.plan
  mechanism = release.mechanism
  plan.validate(hierarchy, described)
  assert (mechanism.noise_multiplier > 0) == (not text)
  if described.episode is not None:
    assert config.evaluation.shot == described.episode.shot
  assert RunConfig.parse(config).way == (1 if module is sinusoid else 5)
  assert config.data.name in data.NAMES


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_docstrings_name_every_argument(module):
  with pytest.raises(ValueError) as e:
    module.get_config("?")
  listed = re.search(r"some of (.*), separated", str(e.value)).group(1)
  documented = module.__doc__.split("Arguments after the colon:")[1]
  for item in listed.split(", "):
    name, default = item.split("=")
    default = {"True": "1", "False": "0"}.get(default, default)
    assert re.search(rf"\b{name}\s\({re.escape(default)}\b", documented), item


def test_defaults_are_those_of_the_paper():
  for module, count, rate in (
      (cifar_fs, 400_000, 0.004), (mini_imagenet, 100_000, 0.016)
  ):
    config = module.get_config("shot=5")
    release = RunConfig.parse(config).release
    hierarchy, described = release.hierarchy, release.plan
    mechanism = release.mechanism
    assert hierarchy.sizes == (count, 5, 20) and hierarchy.copies
    assert described.stages[0] == plan.Poisson(rate)
    assert plan.tasks_per_step(hierarchy, described) == 1600
    assert mechanism.noise_multiplier == 1 and config.model.width == 48


def test_pre_training_is_that_of_the_paper():
  release = RunConfig.parse(cifar_fs_supervised.get_config()).release
  hierarchy, described = release.hierarchy, release.plan
  mechanism = release.mechanism
  assert plan.examples_per_step(hierarchy, described) == pytest.approx(2000)
  assert mechanism.noise_multiplier == 6
  assert cifar_fs_supervised.get_config().steps == 1920  # 100 epochs.


def test_three_stages_of_omniglot():
  release = RunConfig.parse(omniglot_alphabets.get_config()).release
  hierarchy, described = release.hierarchy, release.plan
  assert [hierarchy.num_units(k) for k in range(3)] == [30, 964, 19_280]
  assert hierarchy.child_counts(1).min() == 14
  rate = plan.inclusion_rate(hierarchy, described, "drawing")
  assert rate == pytest.approx(0.27 * 5 / 14 * 2 / 20)
  RunConfig.parse(omniglot_alphabets.get_config("way=14,shot=19"))
  with pytest.raises(plan.PlanError, match="has 14 of level 'character'"):
    RunConfig.parse(omniglot_alphabets.get_config("way=15"))


def test_three_stages_of_cifar_fs():
  release = RunConfig.parse(cifar_fs_superclasses.get_config()).release
  hierarchy, described = release.hierarchy, release.plan
  assert [hierarchy.num_units(k) for k in range(3)] == [20, 64, 38_400]
  assert sorted(set(hierarchy.child_counts(1))) == [2, 3, 4, 5]
  assert described.episode.way == 5
  assert plan.tasks_per_step(hierarchy, described) == 2
  rate = plan.inclusion_rate(hierarchy, described, "image")
  assert rate == pytest.approx(10 / 20 * 1 / 2 * 2 / 600)
  config = cifar_fs_superclasses.get_config("superclasses=2,classes=2")
  described = RunConfig.parse(config).release.plan
  assert described.episode.way == 4  # The product of the class stages.
  with pytest.raises(plan.PlanError, match="has 2 of level 'class'"):
    RunConfig.parse(cifar_fs_superclasses.get_config("classes=3"))
  with pytest.raises(plan.PlanError, match="has 20 units"):
    RunConfig.parse(cifar_fs_superclasses.get_config("tasks=5"))


@pytest.mark.slow  # Prepares and reads archives of up to a gigabyte.
@pytest.mark.parametrize(
    "module, text",
    [
        (cifar_fs, "participants=100,query=1"),
        (cifar_fs_superclasses, ""),
        (cifar_fs_supervised, ""),
        (mini_imagenet, "participants=100,query=1"),
        (mnist_writers, "shot=5,query=1"),
        (omniglot_alphabets, ""),
    ],
    ids=["cifar_fs", "superclasses", "supervised", "mini", "writers",
         "alphabets"],
)
def test_real_data_have_the_hierarchy_that_is_described(module, text):
  data_dir = os.environ.get("EPISODIC_DP_DATA")
  if not data_dir:
    pytest.skip("EPISODIC_DP_DATA names no folder with the real data sets")
  config = module.get_config(text)
  release = RunConfig.parse(config).release
  hierarchy, described = release.hierarchy, release.plan
  try:
    splits = build.load_data(RunConfig.parse(config), data_dir=data_dir)
  except FileNotFoundError as e:
    pytest.skip(str(e))
  train = splits.train
  if described.episode is None:
    train = data.as_examples(train)
    assert len(np.unique(train.labels)) == config.model.outputs
  build.check_same_tree(hierarchy, train.hierarchy)
  for part in (splits.validation, splits.test):
    plan.task_plan(  # Raises where such tasks cannot be drawn.
        part.hierarchy,
        way=RunConfig.parse(config).way,
        shot=config.evaluation.shot,
        query=config.evaluation.query,
    )


def test_omniglot_takes_counts_of_copies_and_any_way():
  config = omniglot.get_config(
      "participants=1000,way=20,query=2,class_copies=98,image_copies=20"
  )
  hierarchy = RunConfig.parse(config).release.hierarchy
  assert hierarchy.most_copies == (1, 98, 20)
  assert config.episode.way == config.data.options.way == 20
  assert config.data.options.per_class == 3
  # The known ones are of other numbers of images.
  assert omniglot.get_config("way=20").hierarchy.most_copies is None
  release = RunConfig.parse(omniglot.get_config()).release
  assert release.hierarchy.most_copies == (1, 1881, 228)
  assert plan.tasks_per_step(release.hierarchy, release.plan) == 1600
