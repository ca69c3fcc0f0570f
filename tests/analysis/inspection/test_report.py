"""Nothing private without the flag; files replaced whole; same seed, same."""

import dataclasses
import io

import jax
import ml_collections
import numpy as np
from PIL import Image
import pytest

from episodic_dp import errors
from episodic_dp import plan
from episodic_dp.analysis.inspection import episodes
from episodic_dp.analysis.inspection import markup
from episodic_dp.analysis.inspection import page as page_lib
from episodic_dp.analysis.inspection import report
from episodic_dp.analysis.inspection import sheet
from episodic_dp.analysis.inspection import summary
from episodic_dp.analysis.inspection import wording
from episodic_dp.config import learners
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import omniglot
from episodic_dp.config.presets import own_data
from episodic_dp.config.presets import sinusoid
from tests.analysis.inspection import page_reader

SIDE = 16


def images_of(dataset):
  return {image.tobytes() for image in dataset.images[..., 0]}


def test_points_are_no_images():
  content = report.make(
      RunConfig.parse(
          sinusoid.get_config("participants=300,rate=0.1,steps=5")
      ),
      "points",
  )
  assert content.task_sheet is None and "points" in content.no_tasks
  assert content.counted and "epsilon" in content.pictures


def test_what_a_participant_would_send_is_said(shown, make, config, splits):
  content, folder = shown
  parsed = RunConfig.parse(config)
  learner = learners.make_learner(parsed, splits.train.image_shape)
  params = learner.init(jax.random.key(1))
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
  sent = wording.count(size)
  assert f"one {sent} bytes (the parameters)" in content.sent
  assert f"take {sent} back (one clipped gradient)" in content.sent
  # 20 steps, each of which draws a participant with probability 1 / 10.
  assert f"{wording.count(2 * size)} bytes in the mean" in content.sent
  text = (folder / "index.html").read_text("utf-8")
  assert markup.escaped(content.sent) in text
  assert not make(data=False).sent


def test_features_are_no_images_either(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  np.savez(
      tmp_path / "own.npz",
      features=np.arange(90.0).reshape(45, 2),
      **{"class": np.arange(45) // 3},
  )
  where = {"data_dir": tmp_path / "own.npz"}
  config = RunConfig.parse(own_data.get_config("way=3,tasks=1"), **where)
  content = report.make(config, "features", report.Options(**where))
  assert content.task_sheet is None
  assert "numbers of shape (2,), so there are no" in content.no_tasks


def read(content):
  return page_reader.Page(page_lib.render(content))


def test_only_public_images_are_shown_unless_asked(shown, splits):
  content, folder = shown
  text = (folder / "index.html").read_text("utf-8")
  images, kinds = page_reader.task_images(page_reader.Page(text), SIDE)
  assert kinds == {"support": 15, "query": 30}
  assert set(images) <= images_of(splits.validation)
  assert not set(images) & images_of(splits.train)
  assert "This page shows private" not in text
  assert not content.task_sheet.private
  assert "nothing on this page was computed from training images" in text


def test_the_flag_shows_training_tasks_and_warns(make, splits, tmp_path):
  content = make(tasks=2, private=True)
  report.write(content, str(tmp_path))
  text = (tmp_path / "index.html").read_text("utf-8")
  images, kinds = page_reader.task_images(page_reader.Page(text), SIDE)
  assert kinds == {"support": 10, "query": 20}
  assert set(images) <= images_of(splits.train)
  assert "This page shows private training images" in text
  assert "nothing on this page" not in text
  modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()}
  assert modes["index.html"] == modes["episodes.png"] == 0o600
  assert modes["rates.png"] & 0o044


def test_the_same_seed_gives_the_same_page(make, shown):
  first, again = (make(tasks=3, seed=5) for _ in range(2))
  assert page_lib.render(first) == page_lib.render(again)
  sheets = [sheet.draw(one.task_sheet, "a") for one in (first, again)]
  assert sheets[0] == sheets[1]
  other = shown[0]  # Of seed 0.
  assert page_reader.task_images(read(first), SIDE) != page_reader.task_images(
      read(other), SIDE
  )


def test_pictures_are_files_of_the_size_they_should_have(shown):
  content, folder = shown
  assert sorted(p.name for p in folder.iterdir()) == sorted(report.FILES)
  for picture in content.pictures.values():
    data = (folder / picture.file).read_bytes()
    assert data == picture.data
    width, height = Image.open(io.BytesIO(data)).size
    assert width == 960 and 300 < height < 1800, picture.file
  width, height = Image.open(folder / "episodes.png").size
  assert width > 700 and height > 400


def test_other_files_stay_and_pictures_of_an_older_page_go(make, tmp_path):
  (tmp_path / "notes.txt").write_text("mine")
  for name in ("frequencies.png", "episodes.png", "index.html"):
    (tmp_path / name).write_text("old")
  report.write(make(data=False), str(tmp_path))
  assert sorted(p.name for p in tmp_path.iterdir()) == [
      "epsilon.png", "hierarchy.png", "index.html", "notes.txt", "rates.png"
  ]
  assert (tmp_path / "notes.txt").read_text() == "mine"
  assert "(--nodata)" in (tmp_path / "index.html").read_text("utf-8")


def test_a_page_that_fails_leaves_the_old_one(make, tmp_path, monkeypatch):
  (tmp_path / "index.html").write_text("old")

  def fail(_):
    raise RuntimeError("no page")

  monkeypatch.setattr(page_lib, "render", fail)
  with pytest.raises(RuntimeError):
    report.write(make(data=False), str(tmp_path))
  assert [p.name for p in tmp_path.iterdir()] == ["index.html"]
  assert (tmp_path / "index.html").read_text() == "old"


def test_what_cannot_be_drawn_is_told(make, shown, monkeypatch):
  def small(*_, **__):
    raise plan.PlanError("2 classes: use more")

  none = dataclasses.replace(shown[0].task_sheet, tasks=())
  monkeypatch.setattr(episodes, "public_tasks", small)
  monkeypatch.setattr(episodes, "training_tasks", lambda *_, **__: none)
  for private, part in ((True, "drew no task"), (False, "2 classes")):
    content = make(private=private)
    assert content.task_sheet is None and part in content.no_tasks
    assert content.no_tasks in page_lib.render(content)


def test_data_of_another_size_are_refused(make, config):
  other = config.copy_and_resolve_references()
  other.hierarchy.sizes = (41, 8, 5)
  with pytest.raises(errors.RunError, match="41 participant"):
    make(config=other)


def test_missing_data_are_the_loaders_sentence(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "cache"))
  with pytest.raises(FileNotFoundError, match="images_background.zip") as e:
    report.make(
        RunConfig.parse(omniglot.get_config()),
        "omniglot",
        report.Options(),
    )
  assert "\n" not in str(e.value)


def accounted(**fields):
  c = ml_collections.ConfigDict(
      dict(
          hierarchy=dict(sizes=(400, 8, 5), levels=("a", "b", "c")),
          plan=dict(stages=("Poisson(0.05)", "FixedSize(5)", "FixedSize(3)")),
          mechanism=dict(clip_unit="a", noise_multiplier=1.0),
          steps=60,
          delta=1e-5,
      )
  )
  c.update(fields)
  return RunConfig.parse(c)


def test_a_target_limits_the_steps_and_curves_end_there():
  found = summary.summarize(accounted(target_epsilon=2.5))
  assert 1 < found.steps < 60 and found.guarantees["a"].epsilon <= 2.5
  assert found.curve_steps[0] == 1 and found.curve_steps[-1] == found.steps
  assert sorted(found.curve_steps) == list(found.curve_steps)
  with pytest.raises(plan.PlanError, match="passed by the first step"):
    summary.summarize(accounted(target_epsilon=1e-3))
  with pytest.raises(plan.PlanError, match="config.delta is missing"):
    summary.summarize(accounted(delta=None))
