"""Folders that are not as they were exported end in one sentence."""

import json
import os
import pickle
import time

import pytest

from episodic_dp import errors
from episodic_dp import export
from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.data.backbone import Backbone
from episodic_dp.export import folder
from tests.damage import changed
from tests.refusals import assert_refused


def reseal(model):
  """Writes digests of what lies there, as a forger would."""
  (model / folder.DIGESTS).unlink()
  folder.seal(model)


def forge(model, name, path, value):
  """Change one value of a file, whose digest is that of what lies there."""
  place = model / name
  data = json.loads(place.read_text())
  place.write_text(json.dumps(changed(data, path.split("."), value)))
  reseal(model)


def assert_load_refused(match, given):
  """Require one sentence that says what is wrong."""
  assert_refused(errors.RunError, match, export.Predictor.load, given)


@pytest.mark.parametrize(
    "name",
    ["weights.safetensors", folder.MODEL, folder.STATEMENT, folder.CARD],
)
def test_a_flipped_bit_or_a_missing_file_is_named(model, name):
  path = model / name
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  assert_load_refused(f"{name} has changed", model)
  path.unlink()
  assert_load_refused(f"lacks '{name}'", model)


def test_whatever_was_not_exported_is_named(model, tmp_path):
  (model / "notes.txt").write_text("")
  assert_load_refused("notes.txt is not named in", model)
  (model / "notes.txt").unlink()
  (model / "more").mkdir()
  assert_load_refused("more is a link, a folder", model)
  (model / "more").rmdir()
  (model / ".git").mkdir()
  (model / ".DS_Store").write_text("")
  folder.read(model)
  # The same bytes by a link may be others a moment later.
  os.rename(model / "README.md", tmp_path / "README.md")
  (model / "README.md").symlink_to(tmp_path / "README.md")
  assert_load_refused("README.md is a link", model)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"files": {}}', '{"algorithm": "MD5", "files": {}}',
     '{"algorithm": "SHA-256", "files": {"../x": "0"}}'],
)
def test_digests_that_are_none(model, text):
  (model / folder.DIGESTS).write_text(text)
  assert_load_refused("no digests.json|lacks|not named", model)


def test_a_folder_without_digests_is_none(tmp_path):
  assert_load_refused("no digests.json", tmp_path)
  assert_load_refused("nowhere does not exist", tmp_path / "nowhere")


def test_a_forged_epsilon_does_not_hold(model):
  forge(model, folder.STATEMENT, "guarantees.participant.epsilon", 0.1)
  assert_refused(plan.PlanError, "stated as 0.1", export.Predictor.load, model)


def test_a_pickle_is_not_opened(model):
  class Bomb:
    def __reduce__(self):
      return os.mkdir, (str(model / "executed"),)

  (model / "weights.safetensors").write_bytes(pickle.dumps(Bomb()))
  reseal(model)
  assert_load_refused("not safetensors", model)
  assert not (model / "executed").exists()


@pytest.mark.parametrize(
    "path, value, match",
    [
        ("format", 9, "format is 9"),
        ("network.name", "conv5", "model.name"),
        ("network.trained", "low_rank", "version 2.0 "),
        ("network.name", "os:system", "does not hold"),
        ("network.widths", [9], "head/kernel"),
        ("network.widths", [10**9], "no run has"),
        ("learner.inner_steps", 10**9, "no run has"),
        ("learner.order", KeyError, "order is missing"),
        ("extra", 1, "model.extra=1"),
        ("weights", ["README.md"], "not safetensors"),
        ("weights", ["weights_1.safetensors"], "lacks"),
        ("start", "start.safetensors", "lacks .'start"),
        ("backbone", plain.to_plain(Backbone(file="")),
         "backbone lacks its digest"),
        ("moments", True, "no batch normalisation"),
        ("format", 2, "format is 2.*export the run again"),
        ("preprocessing.dtype", "int8", "dtype"),
        ("preprocessing.shape", [0, 1, 1], "no run has"),
        ("fine_tuning", {"steps": 1}, "fine_tuning"),
        ("network.widths", [8] * 200_000, "no run has"),
        ("network.outputs", 10**9, "no run has"),
        ("learner.inner_steps", 5000, "4096 steps"),
        ("preprocessing.shape", [60_000] * 3, "no run has"),
        ("weights", ["README.md"] * 10_000, "no run has"),
        ("weights", ["README.md"] * 2, "different names"),
        ("weights", [], "0 files of weights"),
        ("network.widths", [8] * 101, "101 hidden layers"),
    ],
)
def test_a_model_that_no_run_has(model, path, value, match):
  forge(model, folder.MODEL, path, value)
  began = time.process_time()
  said = assert_refused(errors.RunError, match, export.Predictor.load, model)
  assert len(said) < 600
  assert time.process_time() - began < 2


def test_a_folder_of_before_backbones_and_mirrors_is_read(model):
  for path, value in (
      ("backbone", KeyError), ("mirror", KeyError), ("network.rank", 4)
  ):
    forge(model, folder.MODEL, path, value)
  assert not export.Predictor.load(model).network.mirror


def test_steps_that_would_take_hours_are_refused(model, monkeypatch):
  size = (model / "weights.safetensors").stat().st_size
  forge(model, folder.MODEL, "learner.inner_steps", 100)
  monkeypatch.setattr(folder, "_MOST_WORK", 100 * size)
  export.Predictor.load(model)
  monkeypatch.setattr(folder, "_MOST_WORK", 100 * size - 1)
  with pytest.raises(errors.RunError, match="takes 100 steps on .* no run"):
    export.Predictor.load(model)


def test_a_statement_of_too_many_entries_is_not_computed(model):
  forge(model, folder.STATEMENT, "entries", lambda entries: entries * 1001)
  with pytest.raises(plan.PlanError, match="1001 entries, more than"):
    export.Predictor.load(model)


def test_files_that_are_too_large_or_never_end_are_not_read(
    model, monkeypatch
):
  (model / folder.DIGESTS).unlink()
  (model / folder.DIGESTS).symlink_to("/dev/zero")
  assert_load_refused("digests.json is a link", model)
  (model / folder.DIGESTS).unlink()
  folder.seal(model)
  monkeypatch.setattr(folder, "_MOST_BYTES", 3000)
  assert_load_refused("too large", model)
