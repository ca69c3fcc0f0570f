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


def reseal(model):
  """Writes digests of what lies there, as a forger would."""
  (model / folder.DIGESTS).unlink()
  folder.seal(model)


def change(path, edit):
  data = json.loads(path.read_text())
  edit(data)
  path.write_text(json.dumps(data))


def assert_refused(match, given):
  """Require one sentence that says what is wrong."""
  with pytest.raises(errors.RunError, match=match) as caught:
    export.Predictor.load(given)
  assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["weights.safetensors", folder.MODEL, folder.STATEMENT, folder.CARD],
)
def test_a_flipped_bit_or_a_missing_file_is_named(model, name):
  path = model / name
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  assert_refused(f"{name} has changed", model)
  path.unlink()
  assert_refused(f"lacks '{name}'", model)


def test_whatever_was_not_exported_is_named(model, tmp_path):
  (model / "notes.txt").write_text("")
  assert_refused("notes.txt is not named in", model)
  (model / "notes.txt").unlink()
  (model / "more").mkdir()
  assert_refused("more is a link, a folder", model)
  (model / "more").rmdir()
  (model / ".git").mkdir()
  (model / ".DS_Store").write_text("")
  folder.read(model)
  # The same bytes by a link may be others a moment later.
  os.rename(model / "README.md", tmp_path / "README.md")
  (model / "README.md").symlink_to(tmp_path / "README.md")
  assert_refused("README.md is a link", model)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"files": {}}', '{"algorithm": "MD5", "files": {}}',
     '{"algorithm": "SHA-256", "files": {"../x": "0"}}'],
)
def test_digests_that_are_none(model, text):
  (model / folder.DIGESTS).write_text(text)
  assert_refused("no digests.json|lacks|not named", model)


def test_a_folder_without_digests_is_none(tmp_path):
  assert_refused("no digests.json", tmp_path)
  assert_refused("nowhere does not exist", tmp_path / "nowhere")


def test_a_forged_epsilon_does_not_hold(model):
  change(
      model / folder.STATEMENT,
      lambda data: data["guarantees"]["participant"].update(epsilon=0.1),
  )
  reseal(model)
  with pytest.raises(plan.PlanError, match="stated as 0.1"):
    export.Predictor.load(model)


def test_a_pickle_is_not_opened(model):
  class Bomb:
    def __reduce__(self):
      return os.mkdir, (str(model / "executed"),)

  (model / "weights.safetensors").write_bytes(pickle.dumps(Bomb()))
  reseal(model)
  assert_refused("not safetensors", model)
  assert not (model / "executed").exists()


@pytest.mark.parametrize(
    "edit, match",
    [
        (lambda d: d.update(format=9), "format is 9"),
        (lambda d: d["network"].update(name="conv5"), "model.name"),
        (lambda d: d["network"].update(trained="low_rank"), "version 2.0 "),
        (lambda d: d["network"].update(name="os:system"), "does not hold"),
        (lambda d: d["network"].update(widths=[9]), "head/kernel"),
        (lambda d: d["network"].update(widths=[10**9]), "no run has"),
        (lambda d: d["learner"].update(inner_steps=10**9), "no run has"),
        (lambda d: d["learner"].pop("order"), "order is missing"),
        (lambda d: d.update(extra=1), "model.extra=1"),
        (lambda d: d.update(weights=["README.md"]), "not safetensors"),
        (lambda d: d.update(weights=["weights_1.safetensors"]), "lacks"),
        (lambda d: d.update(start="start.safetensors"), "lacks .'start"),
        (lambda d: d.update(backbone=plain.to_plain(Backbone(file=""))),
         "backbone lacks its digest"),
        (lambda d: d.update(moments=True), "no batch normalisation"),
        (lambda d: d.update(format=2), "format is 2.*export the run again"),
        (lambda d: d["preprocessing"].update(dtype="int8"), "dtype"),
        (lambda d: d["preprocessing"].update(shape=[0, 1, 1]), "no run has"),
        (lambda d: d.update(fine_tuning={"steps": 1}), "fine_tuning"),
        (lambda d: d["network"].update(widths=[8] * 200_000), "no run has"),
        (lambda d: d["network"].update(outputs=10**9), "no run has"),
        (lambda d: d["learner"].update(inner_steps=5000), "4096 steps"),
        (lambda d: d["preprocessing"].update(shape=[60_000] * 3), "no run has"),
        (lambda d: d.update(weights=["README.md"] * 10_000), "no run has"),
        (lambda d: d.update(weights=["README.md"] * 2), "different names"),
        (lambda d: d.update(weights=[]), "0 files of weights"),
        (lambda d: d["network"].update(widths=[8] * 101), "101 hidden layers"),
    ],
)
def test_a_model_that_no_run_has(model, edit, match):
  change(model / folder.MODEL, edit)
  reseal(model)
  began = time.process_time()
  with pytest.raises(errors.RunError, match=match) as e:
    export.Predictor.load(model)
  assert "\n" not in str(e.value) and len(str(e.value)) < 600
  assert time.process_time() - began < 2


def test_a_folder_of_before_backbones_and_mirrors_is_read(model):
  def older(described):
    del described["backbone"], described["mirror"]
    described["network"]["rank"] = 4

  change(model / folder.MODEL, older)
  reseal(model)
  assert not export.Predictor.load(model).network.mirror


def test_steps_that_would_take_hours_are_refused(model, monkeypatch):
  size = (model / "weights.safetensors").stat().st_size
  change(model / folder.MODEL, lambda d: d["learner"].update(inner_steps=100))
  reseal(model)
  monkeypatch.setattr(folder, "_MOST_WORK", 100 * size)
  export.Predictor.load(model)
  monkeypatch.setattr(folder, "_MOST_WORK", 100 * size - 1)
  with pytest.raises(errors.RunError, match="takes 100 steps on .* no run"):
    export.Predictor.load(model)


def test_a_statement_of_too_many_entries_is_not_computed(model):
  change(
      model / folder.STATEMENT,
      lambda data: data.update(entries=data["entries"] * 1001),
  )
  reseal(model)
  with pytest.raises(plan.PlanError, match="1001 entries, more than"):
    export.Predictor.load(model)


def test_files_that_are_too_large_or_never_end_are_not_read(
    model, monkeypatch
):
  (model / folder.DIGESTS).unlink()
  (model / folder.DIGESTS).symlink_to("/dev/zero")
  assert_refused("digests.json is a link", model)
  (model / folder.DIGESTS).unlink()
  folder.seal(model)
  monkeypatch.setattr(folder, "_MOST_BYTES", 3000)
  assert_refused("too large", model)
