"""Own data train and are accounted; mistakes are said before any decoding."""

import csv
import shutil

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.analysis import costs
from episodic_dp.config import presets
from episodic_dp.config.presets.own_data import own_data as own_data_run
from episodic_dp.data import originals
from episodic_dp.data.own_data import load as own_data
from episodic_dp.export import folder
from episodic_dp.run import Run
from tests import processes
from tests.data import own_images
from tests.refusals import assert_refused

LEVELS = "levels=writer/glyph/drawing"
TINY = f"{LEVELS},way=2,width=2,steps=2,rate=0.3"
CLASSES = "levels=diagnosis/patient/image,classes=diagnosis,way=3,tasks=2"
CROSSING = dict(crossing="patient", by="patient")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "cache"))


def preset(text=""):
  return presets.load(f"own_data:{text}")


def parse(data_dir, text, **options):
  changes = {f"data.options.{name}": value for name, value in options.items()}
  return preset(text).replace(changes).resolved(data_dir)


@pytest.fixture(scope="module")
def writers(tmp_path_factory):
  """A tree of 12 writers with 2 glyphs of 3 drawings."""
  return own_images.tree(
      tmp_path_factory.mktemp("own") / "writers",
      {f"writer{w:02d}/glyph{g}": 3 for w in range(12) for g in range(2)},
  )


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
  """Six diagnoses of 20 patients with two images; each patient has two."""
  sizes = {
      f"d{d}/p{(10 * d + p) % 60:02d}": 2 for d in range(6) for p in range(20)
  }
  root = tmp_path_factory.mktemp("classes") / "patients"
  return own_images.tree(root, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "empty units", "series", "classes"])
def test_trains_evaluates_and_verifies(kind, writers, patients, tmp_path):
  work, source = tmp_path / "run", writers
  flags = [f"--config=own_data:{TINY}", "--config.data.options.size=16"]
  if kind == "empty units":
    source = tmp_path / "emptied"
    shutil.copytree(writers, source)
    shutil.rmtree(source / "writer03" / "glyph0")
    (source / "writer03" / "glyph0").mkdir()
    flags.append("--config.plan.allow_short_units=True")
  elif kind == "series":
    source, labels = tmp_path / "own.npz", np.arange(60) // 5
    rng = np.random.default_rng(0)
    values = 4 * rng.normal(size=(12, 32, 2))[labels]
    values += rng.normal(size=values.shape)
    np.savez(source, features=values, **{"class": labels})
    flags = [
        "--config=own_data:way=2,tasks=1,width=2,steps=2",
        "--config.model.name=conv1d", "--config.learner.name=protonet",
    ]
  elif kind == "classes":
    source = patients
    flags = [
        f"--config=own_data:{CLASSES},width=2,steps=3,noise_multiplier=4",
        "--config.data.options.crossing=patient",
        "--config.data.options.by=patient", "--config.data.options.size=16",
        "--config.data.options.shares=(1,1,1)",
    ]
  def run(*arguments):
    processes.printed("-m", "episodic_dp", *arguments, **processes.QUICK)

  run(
      "train", *flags, "--config.compute.resident=False",
      "--config.evaluation.validation_tasks=4", f"--data_dir={source}",
      f"--workdir={work}", f"--export={tmp_path / 'model'}",
  )
  assert (tmp_path / "model" / folder.MODEL).exists()
  run("evaluate", f"--data_dir={source}", f"--workdir={work}")
  run("verify", work / "guarantee.json")


def test_accounts_without_decoding_or_jax(tmp_path):
  """Empty files are listed; reading one would fail."""
  sizes = {f"g{g}/c{c}": 3 + (g + c) % 2 for g in range(9) for c in range(5)}
  root = own_images.tree(tmp_path / "mine", sizes)
  for path in root.glob("*/*/*.png"):
    path.write_bytes(b"")
  config = parse(root, f"{LEVELS},way=4,steps=3")
  text = costs.table(config, costs.account(config))
  train = config.data.survey.hierarchies["train"]
  for k, level in enumerate(("writer", "glyph", "drawing")):
    assert f"{level} ({train.num_units(k)}): " in text
  assert config.release.hierarchy.same_tree(train)
  # A hierarchy that is there is left alone, as in the config.json of a run.
  again = Run.parse(config.as_json()).resolved(tmp_path / "nowhere")
  assert again.as_json() == config.as_json() and again.data.survey is None


def test_images_stay_mapped_and_on_the_host_where_asked(writers, monkeypatch):
  monkeypatch.setattr(training, "sample_tasks", lambda *_, **__: None)
  for resident in (True, False):
    config = parse(writers, TINY).replace({"compute.resident": resident})
    train = config.build(data_dir=writers).train
    assert train.resident is resident
    assert isinstance(train.images, np.memmap)


def test_units_that_nothing_declares_are_assumed_to_be_all(tmp_path):
  for units in ({}, {"units": np.arange(18)}):
    arrays = own_images.arrays(classes=18)
    arrays = {name: values[1:] for name, values in arrays.items()}
    np.savez(tmp_path / "own.npz", **arrays, **units)
    config = parse(tmp_path / "own.npz", "way=3,tasks=1,query=1,steps=2")
    for one in (config, Run.parse(config.as_json())):
      said = {
          level: any("a unit is emptied" in line for line in g["assumptions"])
          for level, g in costs.account(one)["guarantees"].items()
      }
      assert said == {"class": False, "image": not units}


@pytest.mark.parametrize(
    "text, sizes, match",
    [
        ("tasks=1", {f"c{k}": 3 for k in range(12)},
         r"class \(2\) > .* 5 classes"),
        ("way=50", {f"c{k:02d}": 3 for k in range(18)}, "a task takes 50"),
        (LEVELS, {f"p{p}/c{k}": 4 for p in range(9) for k in "ab"},
         r"glyph \(4\) > .* 5 classes with 2 examples"),
    ],
)
def test_data_that_are_too_small_say_what_they_hold(
    tmp_path, text, sizes, match
):
  root = own_images.tree(tmp_path / "mine", sizes)
  assert_refused(plan.PlanError, match, parse, root, text)


@pytest.mark.parametrize("sizes", [(1, 4, 4), (4, 1, 1), (4, 4, 4)])
@pytest.mark.few(1)
def test_small_units_of_a_public_part_are_left_out_and_counted(
    tmp_path, caplog, sizes
):
  """In validation and test a person with too few images fills no task."""
  held = {
      f"{part}/{part}{p}/c{c}": sizes[p]
      for part in ("validation", "test") for p in range(3) for c in range(2)
  }
  held |= {f"train/p{p}/c{c}": 2 for p in range(9) for c in range(2)}
  root = own_images.tree(tmp_path / "mine", held)
  parse(root, f"{LEVELS},way=2")
  able = sum(size >= 2 for size in sizes)
  assert (f"{able} of 3 units of level" in caplog.text) == (able < 3)
  public = own_data.load(
      data.read_options("own_data", {}),
      originals.Where(data_dir=root, cache_dir=tmp_path / "cache"),
  ).validation
  tasks = training.sample_tasks(
      public, way=2, shot=1, query=1, count=60, seed=0
  )
  used = np.unique(tasks.rows)
  people = public.hierarchy.parents(1)[public.hierarchy.parents(2)]
  assert {*people[used]} == {p for p in range(3) if sizes[p] >= 2}


def test_empty_units_are_accounted_where_short_ones_are_allowed(
    writers, tmp_path
):
  root = tmp_path / "emptied"
  shutil.copytree(writers, root)
  survey = own_data.survey(root, data.read_options("own_data", {}))
  first = survey.hierarchies["train"].names[0][0]
  for drawing in (root / first / "glyph0").iterdir():
    drawing.unlink()
  config = preset(TINY).replace({"plan.allow_short_units": False})
  with pytest.raises(plan.PlanError, match="has 0 of level 'drawing'"):
    config.resolved(root)
  config = parse(root, TINY)
  assert config.release.hierarchy.child_counts(2).tolist() == [0] + [3] * 15
  found = costs.account(config)["guarantees"]
  assert found.keys() == {"writer", "glyph", "drawing"}


def test_people_begin_with_the_public_start_unless_a_network_is_named(writers):
  config = parse(writers, f"{LEVELS},way=2")
  assert (config.model.start, config.model.width) == ("glyphs", 32)
  assert config.learner.name == "protonet"
  for text in ("start=none", "width=8"):
    assert parse(writers, f"{LEVELS},way=2,{text}").model.start is None
  coloured = parse(writers, f"{LEVELS},way=2", color=True)
  assert coloured.model.start == "scenes"
  named = preset(f"{LEVELS},way=2").replace({"model.name": "mlp"})
  named = named.resolved(writers)
  assert (named.model.start, named.model.trained) == (None, "all")


@pytest.mark.parametrize("level, delta", [("writer", 1e-2), ("drawing", 1e-3)])
def test_delta_follows_from_the_number_of_units(writers, level, delta):
  # 8 writers, of 12, and their 48 drawings train.
  config = preset(TINY).replace({"privacy_unit": level}).resolved(writers)
  hierarchy = config.release.hierarchy
  units = hierarchy.num_units(hierarchy.level_index(level))
  assert config.delta == delta < 1 / (10 * units) <= 10 * delta


@pytest.mark.parametrize(
    "option,value",
    [("size", 0), ("depth", 12), ("shares", (1, 2)), ("levels", ("image",))],
)
def test_wrong_options_are_named_before_anything_is_listed(option, value):
  with pytest.raises(ValueError, match=rf"\b{option}="):
    parse("nowhere", "", **{option: value})


def test_wrong_levels_are_refused(writers):
  with pytest.raises(ValueError, match="folder depth 2.*name 3 levels"):
    parse(writers, "")
  assert_refused(ValueError, "two or three levels", preset, "levels=image")
  with pytest.raises(ValueError, match="classes=diagnosis or.*=patient"):
    preset("levels=diagnosis/patient/image,classes=image")
  with pytest.raises(ValueError, match=r"a tuple, \('class', 'image'\)"):
    own_data_run(levels="class/image")
  with pytest.raises(FileNotFoundError, match="own_data needs data_dir"):
    preset().resolved()


# Classes above the units whose privacy is kept --------------------------------


def test_classes_and_units_of_privacy_are_named(patients, tmp_path):
  config = parse(patients, CLASSES, **CROSSING)
  assert config.level == "patient"
  assert config.release.plan.episode.classes == "diagnosis"
  assert config.release.hierarchy.most_copies == (1, 2, 1)
  text = costs.table(config, costs.account(config))
  assert "a task has 3 classes (diagnosis), each with " in text
  assert "patient (72 places, up to 2 each)" in text
  path = patients.parent / "table.csv"
  with path.open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["file", "patient", "diagnosis"])
    for image in sorted(patients.rglob("*.png")):
      diagnosis, patient = image.parts[-3:-1]
      rows.writerow([image.relative_to(path.parent), patient, diagnosis])
  listed = parse(path, CLASSES, **CROSSING).release.hierarchy
  assert listed.units_from_records
  assert listed.same_tree(config.release.hierarchy)
  own = parse(path, "levels=patient/diagnosis/image,way=2")
  assert own.release.plan.episode.form == "unit" and own.level == "patient"


def test_names_that_may_be_one_unit_are_refused_until_it_is_said(patients):
  with pytest.raises(plan.PlanError) as e:  # All that is needed, at once.
    parse(patients, CLASSES)
  for option in ("crossing=patient", "by=patient", "depth=8"):
    assert f"--config.data.options.{option}" in str(e.value)
  with pytest.raises(plan.PlanError, match="is in 2 units of level 'diagnosis"):
    parse(patients, CLASSES, shares=(1, 2, 3))  # Of the parts together.
  assert "add crossing='patient' and by='patient' (in a " in str(e.value)
  with pytest.raises(ValueError, match="must be one of the levels"):
    parse(patients, CLASSES, crossing="ward")


def test_a_protected_unit_is_in_no_public_part(tmp_path, caplog):
  sizes = {f"w{w}/g{g}": 2 for w in range(4) for g in range(6)}
  root = own_images.tree(tmp_path / "writers", sizes)
  divided = {"data.options.by": "glyph", "data.options.shares": (1, 1, 1)}
  config = preset(f"{LEVELS},way=2").replace(divided)
  with pytest.raises(plan.PlanError, match="^writer 'w0' has examples in tr"):
    config.resolved(root)
  for level, names in (("drawing", ()), ("glyph", ("2 names for 8 units",))):
    caplog.clear()
    config.replace({"privacy_unit": level}).resolved(root)
    writer, *others = caplog.messages
    assert "4 of the units of level 'writer'" in writer
    assert [" ".join(text.split()[:5]) for text in others] == [*names]


def test_equal_names_of_protected_units_are_told_of_public_parts(
    tmp_path, caplog
):
  sizes = {f"w{w}/g{g}": 3 for w in range(3) for g in range(6)}
  root = own_images.tree(tmp_path / "writers", sizes)
  config = preset(f"{LEVELS},way=2").replace({"privacy_unit": "glyph"})
  config.resolved(root)  # One writer in each part.
  (text,) = [m for m in caplog.messages if "names for" in m]
  assert text.startswith("6 names for 18 units of level 'glyph'")
