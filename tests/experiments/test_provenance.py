"""What is kept beside a result: which code, configuration and statement."""

import hashlib
import json
import subprocess

from episodic_dp import _version
from experiments import provenance


def test_the_code_is_a_commit_of_this_tree_or_its_version():
  found = provenance.code()
  if found.startswith("version"):
    assert found == f"version {_version.__version__}"
    return
  commit = found.removesuffix("-dirty")
  subprocess.run(
      ["git", "-C", provenance.ROOT, "cat-file", "-e", f"{commit}^{{commit}}"],
      check=True,
  )


def test_every_code_that_goes_on_with_a_run_is_noted_once(
    tmp_path, monkeypatch
):
  run = tmp_path / "run"
  for name, expected in (
      ("a", ["a"]), ("a", ["a"]), ("b", ["a", "b"]), ("a", ["a", "b"])
  ):  # fmt: skip
    monkeypatch.setattr(provenance, "code", lambda name=name: name)
    assert provenance.begin(run) == expected


def test_a_run_that_other_code_began_unseen_says_so(tmp_path, monkeypatch):
  monkeypatch.setattr(provenance, "code", lambda: "a")
  (tmp_path / "config.json").write_text("{}")
  assert provenance.begin(tmp_path) == ["not recorded", "a"]


def test_a_run_leaves_its_curve_config_and_the_digest_of_its_statement(
    tmp_path,
):
  sizes = [[number] * 100 for number in range(9)]
  config = {"steps": 2, "hierarchy": {"levels": ["a"], "sizes": sizes}}
  (tmp_path / "config.json").write_text(json.dumps(config))
  (tmp_path / "guarantee.json").write_text("{}")
  (tmp_path / "metrics.jsonl").write_text(
      '{"step": 0, "validation_accuracy": 0.2, "validation_low": 0.1,'
      ' "validation_high": 0.3}\n'
      '{"step": 1, "validation_accuracy": 0.25, "validation_low": 0.2,'
      ' "validation_high": 0.3}\n{"step": 2}\n'
  )
  found = provenance.of_run(tmp_path, "accuracy")
  assert found["validation"] == {
      "steps": [1], "values": [0.25], "low": [0.2], "high": [0.3]
  }  # fmt: skip
  assert "diagnostics" not in found
  digest = hashlib.sha256(b"{}").hexdigest()
  assert found["statement"] == f"sha256:{digest}"
  assert found["config"]["steps"] == 2
  assert len(json.dumps(found)) < 400


def test_private_diagnostics_are_kept_where_a_run_asked_for_them(tmp_path):
  (tmp_path / "guarantee.json").write_text("{}")
  path = tmp_path / "private" / "diagnostics.jsonl"
  path.parent.mkdir()
  path.write_text('{"step": 1, "private/loss": 1.5}\n')
  for asked in (False, True):
    config = {"private_diagnostics": asked}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = provenance.of_run(tmp_path, "accuracy").get("diagnostics")
    assert found == ({"loss": [1.5]} if asked else None)
