"""Runs of targets: trained once, resumed, refused."""

import hashlib
import json
from unittest import mock

import pytest

from episodic_dp import training
from episodic_dp.training import evaluation
from experiments import reproduce
from experiments import runs as runs_lib
from experiments import targets
from tests.stored import json_of

MADE = "protonet_private_0"


@pytest.mark.slow
def test_a_finished_run_is_reported_and_not_done_again(tmp_path, monkeypatch):
  reproduce.main("learners", "smoke", str(tmp_path), only=[MADE])
  result = json_of(tmp_path / "learners.json")
  found = result["runs"][MADE]
  assert list(result["runs"]) == [MADE]
  stated = json_of(tmp_path / MADE / "guarantee.json")
  assert found["epsilon"]["participant"]["epsilon"] == (
      stated["guarantees"]["participant"]["epsilon"]
  ) <= 1.5
  assert found["config"]["steps"] == 2 and len(found["code"]) == 1
  stored = found["accuracy"]["single"]
  assert evaluation.decode_scores(stored["per_task"]).mean() == (
      pytest.approx(stored["mean"])
  )
  assert result["command"] in (tmp_path / "learners.md").read_text()
  monkeypatch.setattr(training, "train", None)
  reproduce.main("learners", "smoke", str(tmp_path), only=[MADE])
  assert json_of(tmp_path / "learners.json") == result


def test_settings_are_compared_on_validation_classes(tmp_path, monkeypatch):
  monkeypatch.setattr(training, "train", lambda *_: mock.Mock(stopped="done"))
  (run,) = targets.load("frontier").runs("smoke")
  failing = mock.patch.object(runs_lib.measure, "measure", side_effect=KeyError)
  with failing as measured, pytest.raises(KeyError):
    runs_lib.finish(run, tmp_path, shared=runs_lib.Shared())
  splits = measured.call_args.kwargs["splits"]
  assert splits.test is splits.validation


def test_the_outcome_of_another_command_is_refused(tmp_path):
  at_cpu, full = (
      targets.load("figure12").runs(scale)[0] for scale in ("cpu", "full")
  )
  runs_lib.record(at_cpu, tmp_path, {})
  assert runs_lib.load(at_cpu, tmp_path)["code"] == [runs_lib.code()]
  with pytest.raises(training.RunError, match="another command"):
    runs_lib.load(full, tmp_path)


@pytest.mark.parametrize(
    "target,options,match",
    [
        ("learners", {"only": ["maml"]}, "maml_private_0"),
        ("table7", {}, "learners"),
        ("learners", {"data_dir": "somewhere"}, "data_dir"),
    ],
)
def test_wrong_names_are_refused_before_training(
    tmp_path, target, options, match
):
  with pytest.raises(ValueError, match=match):
    reproduce.main(target, "smoke", str(tmp_path / "a"), **options)
  assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("asked", [False, True])
def test_a_run_leaves_its_curve_and_diagnostics_if_it_asked(tmp_path, asked):
  sizes = [[number] * 100 for number in range(9)]
  (tmp_path / "config.json").write_text(json.dumps({
      "private_diagnostics": asked,
      "hierarchy": {"levels": ["a"], "sizes": sizes},
  }))
  (tmp_path / "guarantee.json").write_text("{}")
  (tmp_path / "metrics.jsonl").write_text(
      '{"step": 1, "validation_accuracy": 0.25, "validation_low": 0.2,'
      ' "validation_high": 0.3}\n{"step": 2}\n'
  )
  path = tmp_path / "private" / "diagnostics.jsonl"
  path.parent.mkdir()
  path.write_text('{"step": 1, "private/loss": 1.5}\n')
  found = runs_lib.provenance(tmp_path, "accuracy")
  assert found["validation"]["values"] == [0.25]
  assert found["statement"] == f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
  assert found.get("diagnostics") == ({"loss": [1.5]} if asked else None)
  assert len(json.dumps(found)) < 400
