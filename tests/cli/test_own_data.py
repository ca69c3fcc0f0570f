"""A folder of one's own trains and is accounted; mistakes are said early."""

import ast
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.analysis import costs
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import own_data as config_lib
from episodic_dp.data.own_data import decoding
from episodic_dp.data.own_data import load as data_lib
from episodic_dp.data.own_data import rows
from tests.data import own_images

QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # To compile.
ROOT = pathlib.Path(__file__).resolve().parents[2]
LEVELS = "levels=writer/glyph/drawing"
TINY = f"{LEVELS},way=2,width=2,steps=2,rate=0.3"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "cache"))


def run(command, *arguments):
  program = ("episodic_dp", command)
  if command == "export_glyphs":
    program = ("experiments.export_glyphs",)
  return subprocess.run(
      [sys.executable, "-m", *program, *arguments],
      cwd=ROOT, env=os.environ | QUICK, capture_output=True, text=True,
      timeout=400,
  )


@pytest.fixture(scope="module")
def writers(tmp_path_factory):
  """A tree of 12 writers with 2 glyphs of 3 drawings."""
  out = tmp_path_factory.mktemp("own") / "writers"
  sizes = ("--writers=12", "--glyphs=2", "--drawings=3", "--size=16")
  done = run("export_glyphs", f"--out={out}", *sizes)
  assert "72 drawings of 12 writers" in done.stdout, done.stderr
  assert len(list(out.glob("writer*/glyph*/drawing*.png"))) == 72
  return out


@pytest.mark.slow
def test_trains_on_a_folder_with_one_flag(writers, tmp_path):
  """The images stay on the host; the README's commands at the smallest size."""
  done = run(
      "train",
      f"--config=own_data:{TINY}",
      "--config.data.options.size=16",
      "--config.compute.resident=False",
      "--config.learner.order=first",
      "--config.evaluation.validation_tasks=4",
      f"--data_dir={writers}",
      f"--workdir={tmp_path / 'run'}",
  )
  assert done.returncode == 0, done.stderr
  assert "done: 2 steps" in done.stdout
  for level in ("writer", "glyph", "drawing"):
    assert f"  {level} " in done.stdout
  kept = json.loads((tmp_path / "run" / "config.json").read_text())
  # 12 writers: 8 train, for validation and test 2 each.
  assert kept["hierarchy"] == {
      "levels": ["writer", "glyph", "drawing"], "sizes": [8, 2, 3]
  }


@pytest.mark.slow  # A step and an evaluation are compiled, for each.
@pytest.mark.parametrize(
    "shape,network,more",
    [
        ((6,), "mlp", "--config.data.options.scale=2"),
        ((32, 2), "conv1d", "--config.learner.name=protonet"),
    ],
)
def test_trains_and_evaluates_on_features(tmp_path, shape, network, more):
  """Classes that a mean tells apart are told apart, off the host."""
  rng = np.random.default_rng(0)
  labels = np.arange(60) // 5
  means = 4 * rng.normal(size=(12, *shape))
  values = means[labels] + rng.normal(size=(60, *shape))
  path, work = tmp_path / "own.npz", f"--workdir={tmp_path / 'run'}"
  np.savez(path, features=values, **{"class": labels})
  flags = (
      "--config=own_data:way=2,tasks=1,width=2,steps=2",
      f"--config.model.name={network}",
      "--config.evaluation.validation_tasks=4",
      "--config.compute.resident=False",
      f"--data_dir={path}",
      more,
  )
  done = run("train", work, *flags)
  assert done.returncode == 0, done.stderr
  done = run("evaluate", f"--data_dir={path}", work)
  assert done.returncode == 0, done.stderr
  found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
  assert found["single"]["accuracy"]["mean"] > 0.7


@pytest.fixture
def emptied(writers, tmp_path):
  """The writers, one of whom has an empty glyph and another one no glyph."""
  names = data_lib.survey(writers).hierarchies["train"].names[0]
  root = tmp_path / "emptied"
  shutil.copytree(writers, root)
  for drawing in (root / names[0] / "glyph0").iterdir():
    drawing.unlink()
  for glyph in (root / names[1]).iterdir():
    shutil.rmtree(glyph)
  return root


def test_empty_units_are_accounted_where_short_ones_are_allowed(emptied):
  config = config_lib.get_config(TINY)
  with pytest.raises(plan.PlanError, match="allow_short_units=True to the"):
    RunConfig.parse(config, data_dir=emptied)
  config.plan.allow_short_units = True
  config = RunConfig.parse(config, data_dir=emptied)
  hierarchy = config.release.hierarchy
  assert hierarchy.child_counts(1).tolist() == [2, 0, *[2] * 6]
  assert hierarchy.child_counts(2).tolist() == [0, *[3] * 13]
  found = costs.account(config)["guarantees"]
  assert found.keys() == {"writer", "glyph", "drawing"}


@pytest.mark.slow  # A step and an evaluation are compiled.
def test_trains_and_evaluates_with_empty_units(emptied, tmp_path):
  work = f"--workdir={tmp_path / 'run'}"
  done = run(
      "train",
      f"--config=own_data:{TINY}",
      "--config.data.options.size=16",
      "--config.plan.allow_short_units=True",
      "--config.evaluation.validation_tasks=4",
      f"--data_dir={emptied}",
      work,
  )
  assert done.returncode == 0, done.stderr
  assert "done: 2 steps" in done.stdout
  done = run("evaluate", f"--data_dir={emptied}", work)
  assert done.returncode == 0, done.stderr


def test_images_stay_mapped_and_on_the_host_where_asked(writers, monkeypatch):
  monkeypatch.setattr(build, "draw_tasks", lambda *_, **__: None)
  config = config_lib.get_config(TINY)
  for resident in (True, False):
    config.compute.resident = resident
    parsed = RunConfig.parse(config, data_dir=writers)
    train = build.build(parsed, data_dir=writers).spec.train
    assert train.resident is resident
    assert isinstance(train.images, np.memmap)


def test_accounts_without_decoding_or_jax(tmp_path):
  """Empty files are listed; reading one would fail."""
  sizes = {f"g{g}/c{c}": 3 + (g + c) % 2 for g in range(9) for c in range(5)}
  root = own_images.tree(tmp_path / "mine", sizes)
  for path in root.glob("*/*/*.png"):
    path.write_bytes(b"")
  done = run(
      "account",
      f"--config=own_data:{LEVELS},way=4,steps=3",
      f"--data_dir={root}",
  )
  assert done.returncode == 0, done.stderr
  train = data_lib.survey(root).hierarchies["train"]
  for k, level in enumerate(("writer", "glyph", "drawing")):
    assert f"{train.num_units(k)} {level} by " in done.stdout
    assert f"\n{level} " in done.stdout


def test_ragged_sizes_reach_the_config(tmp_path):
  sizes = {f"g{g}/c{c}": 2 + (g * c) % 3 for g in range(6) for c in range(3)}
  root = own_images.tree(tmp_path / "mine", sizes)
  config = RunConfig.parse(
      config_lib.get_config(f"{LEVELS},way=3"), data_dir=root
  )
  described = config.release.hierarchy
  listed = data_lib.survey(
      root, levels=("writer", "glyph", "drawing")
  ).hierarchies["train"]
  build.check_same_tree(described, listed)
  assert described.offsets is not None
  # What is there is left alone, as in the config.json of a run.
  again = RunConfig.parse(config.as_json(), data_dir=tmp_path / "nowhere")
  assert again.release.hierarchy.same_tree(described) and again.survey is None


def test_two_levels_and_npz(tmp_path):
  np.savez(tmp_path / "own.npz", **own_images.arrays(classes=9))
  config = config_lib.get_config("way=3,tasks=1,steps=2")
  config = RunConfig.parse(config, data_dir=tmp_path / "own.npz")
  assert config.source["hierarchy"]["sizes"] == (5, 4)
  assert costs.account(config)["guarantees"].keys() == {"class", "image"}


def test_units_that_nothing_declares_are_assumed_to_be_all(tmp_path):
  for units in ({}, {"units": np.arange(9)}):
    arrays = own_images.arrays(classes=9)
    arrays = {name: values[1:] for name, values in arrays.items()}
    np.savez(tmp_path / "own.npz", **arrays, **units)
    config = config_lib.get_config("way=3,tasks=1,query=1,steps=2")
    config = RunConfig.parse(config, data_dir=tmp_path / "own.npz")
    again = RunConfig.parse(config.as_json())
    for one in (config, again):
      found = costs.account(one)["guarantees"]
      said = {
          level: any("a unit is emptied" in line for line in g["assumptions"])
          for level, g in found.items()
      }
      assert said == {"class": False, "image": not units}


def test_short_classes_are_named_before_anything_is_decoded(
    tmp_path, monkeypatch
):
  root = own_images.tree(
      tmp_path / "mine", {f"class{k}": 3 - (k == 4) for k in range(12)}
  )
  monkeypatch.setattr(decoding, "_decode", None)
  with pytest.raises(plan.PlanError, match=r"\('class4'\) has 2 .*query"):
    RunConfig.parse(config_lib.get_config("tasks=1,query=2"), data_dir=root)
  with pytest.raises(plan.PlanError, match="validation part of .*mine is too"):
    build.build(
        RunConfig.parse(config_lib.get_config("tasks=1"), data_dir=root),
        data_dir=root,
    )
  with pytest.raises(FileNotFoundError, match="own_data needs data_dir"):
    RunConfig.parse(config_lib.get_config())


FLAG = re.compile(r"--config[.]([\w.]+)=(\"[^\"]*\"|\S+)")


def mended(config, sentence):
  """The config with the flags that a sentence names, as a shell reads them."""
  found = FLAG.findall(sentence)
  assert found, sentence
  for name, value in found:
    value = ast.literal_eval(value.strip('"'))
    config.update_from_flattened_dict({name: value})
  return config


@pytest.mark.parametrize(
    "arguments,sizes",
    [
      # Fifty ways of eighteen classes, of which eleven train.
      ("way=50", {f"c{k:02d}": 3 for k in range(18)}),
      ("way=4,tasks=1,shot=5", {f"c{k:02d}": 4 for k in range(20)}),
      # They fit with a larger share of the data.
      ("way=4,tasks=1", {f"c{k:02d}": 3 for k in range(12)}),
      (f"{LEVELS},way=5", {f"p{p}/c{k}": 4 for p in range(6) for k in "abc"}),
      (
          f"{LEVELS},shot=9",
          {f"p{p}/c{k}": 4 for p in range(6) for k in range(5)},
      ),
      # Diagnoses, each with patients of its own.
      (
          "levels=d/p/i,classes=d,way=4,shot=3",
          {f"d{d}/d{d}p{p}": 2 for d in range(12) for p in range(3)},
      ),
      ("way=2,tasks=1", {f"c{k}": 2 * (k != 8) for k in range(9)}),
    ],
)  # fmt: skip
def test_flags_for_tasks_that_are_too_large_can_be_typed(
    tmp_path, arguments, sizes
):
  """Once, or for another part: then the plan fits all that is there."""
  root = own_images.tree(tmp_path / "mine", sizes)
  for name, count in sizes.items():
    (root / name).mkdir(exist_ok=True) if not count else None
  config = config_lib.get_config(arguments)

  def check():
    parsed = RunConfig.parse(config, data_dir=root)
    build._check_evaluation(parsed, parsed.survey)
    parsed.check_complete()

  with pytest.raises(plan.PlanError, match="too small for its tasks") as caught:
    check()
  mended(config, str(caught.value))
  check()


@pytest.mark.parametrize(
    "train,short", [(12, False), (5, False), (4, False), (20, True)]
)
def test_the_flags_for_smaller_tasks_leave_classes_a_guarantee(
    tmp_path, train, short
):
  sizes = {f"train/c{k:02d}": 3 - 2 * (short and not k) for k in range(train)}
  sizes |= {f"{p}/{p}{k}": 3 for p in ("validation", "test") for k in range(5)}
  root = own_images.tree(tmp_path / "mine", sizes)
  config = config_lib.get_config()
  with pytest.raises(plan.PlanError, match="draws") as caught:
    RunConfig.parse(config, data_dir=root)
  mended(config, str(caught.value))
  release = RunConfig.parse(config, data_dir=root).release
  # All classes in every step would leave one no guarantee.
  assert "class" in accounting.guarantees(release, steps=1, delta=1e-5)


@pytest.mark.parametrize(
    "sizes",
    [
        {f"c{k}": 10 for k in range(4)},  # Two train, one is for validation.
        {f"c{k:02d}": 1 if k % 3 == 0 else 10 for k in range(30)},
    ],
)
def test_what_data_lack_for_any_task_is_said(tmp_path, sizes):
  root = own_images.tree(tmp_path / "mine", sizes)
  said = "give each of training, validation and test at least two of level 'cl"
  with pytest.raises(plan.PlanError, match=said):
    RunConfig.parse(config_lib.get_config(), data_dir=root)


def test_an_empty_class_leaves_the_others_a_guarantee(tmp_path):
  parts = {"train": 19, "validation": 5, "test": 5}
  sizes = {f"{p}/{p}{k:02d}": 3 for p, n in parts.items() for k in range(n)}
  root = own_images.tree(tmp_path / "mine", sizes)
  (root / "train" / "empty").mkdir()
  config = config_lib.get_config()
  with pytest.raises(plan.PlanError, match="has 0 of level") as caught:
    RunConfig.parse(config, data_dir=root)
  assert "FixedSize(15)" in str(caught.value)
  mended(config, str(caught.value))
  release = RunConfig.parse(config, data_dir=root).release
  assert "class" in accounting.guarantees(release, steps=1, delta=1e-5)


def test_an_empty_unit_makes_no_more_units_public(tmp_path):
  sizes = {f"p{p:02d}/c{k}": 4 for p in range(20) for k in range(6)}
  root = own_images.tree(tmp_path / "mine", sizes)
  for p in range(20):
    (root / f"p{p:02d}" / "empty").mkdir()
  config = config_lib.get_config(LEVELS)
  with pytest.raises(plan.PlanError, match="has 0 of level") as caught:
    RunConfig.parse(config, data_dir=root)
  assert "shares" not in str(caught.value)
  mended(config, str(caught.value))
  RunConfig.parse(config, data_dir=root)


@pytest.mark.parametrize(
    "option,value",
    [("size", 0), ("depth", 12), ("scale", (0,)), ("offset", ("x",)),
     ("clip", (3,))],
)  # fmt: skip
def test_wrong_options_are_named_before_anything_is_listed(option, value):
  config = config_lib.get_config()
  config.data.options[option] = value
  with pytest.raises(ValueError, match=f"option {option}=") as caught:
    RunConfig.parse(config, data_dir="nowhere")
  (name, text), *_ = FLAG.findall(str(caught.value))
  assert name == f"data.options.{option}"
  rows.options(**{option: ast.literal_eval(text)})


def test_a_plan_that_contradicts_itself_keeps_its_own_sentence(tmp_path):
  root = own_images.tree(tmp_path / "mine", {f"c{k:02d}": 3 for k in range(40)})
  config = config_lib.get_config("way=4,tasks=1")
  config.episode.way = 3
  with pytest.raises(plan.PlanError, match="^the class stages draw 4 classes"):
    RunConfig.parse(config, data_dir=root)


def test_levels_of_another_depth_are_refused(tmp_path, writers):
  with pytest.raises(ValueError, match="2 folders deep.*name 3 levels"):
    RunConfig.parse(config_lib.get_config(), data_dir=writers)
  with pytest.raises(ValueError, match="two or three levels"):
    config_lib.get_config("levels=image")


def test_export_does_not_write_over_anything(writers):
  done = run("export_glyphs", f"--out={writers}")
  assert done.returncode == 1
  assert "choose a folder that does not exist yet" in done.stderr
  assert len(list(writers.glob("*/*/*.png"))) == 72
