"""The audit's command line: numbers, files, the verdict, errors."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from episodic_dp import accounting
from episodic_dp.auditing import claims
from episodic_dp.cli import audit
from episodic_dp.cli import shared_flags
from episodic_dp.config import RunConfig

FLAGS = dict(
    data_dir=None,
    level="task", runs=3000, steps=4, seed=0, format="table",
)

SMALL = dict(
    plan=dict(stages=("Poisson(0.05)", "FixedSize(1)", "FixedSize(2)")),
    episode=dict(way=1, shot=1, query=1),
    mechanism=dict(clip_unit="task", noise_multiplier=0.4),
)


@pytest.fixture
def attack(make_config, monkeypatch, tmp_path):
  """attack(**flags) -> what main wrote, with flags that have these values."""

  def run(**changes):
    fields = SMALL | changes.pop("config", {})
    values = FLAGS | dict(config=make_config(**fields), out=str(tmp_path))
    values = SimpleNamespace(**(values | changes))
    monkeypatch.setattr(shared_flags.flags, "FLAGS", values)
    audit.main(values)
    return json.loads((tmp_path / "audit.json").read_text())

  return run


def test_measured_is_below_claimed_for_a_small_audit(make_config):
  result = claims.audit(
      RunConfig.parse(make_config(**SMALL)).release, "task",
      steps=4, delta=0.02, runs=3000, confidence=0.999,
  )
  (row,) = result["levels"]
  assert result["holds"] and claims.verdict(result) is None
  assert 0.3 * row["claimed"] < row["measured"] <= row["claimed"]
  assert [p["steps"] for p in row["curve"]] == [1, 2, 3, 4]
  assert row["curve"][-1]["measured"] == row["measured"]
  assert row["bound"]["confidence"] == pytest.approx(0.999)
  # The claim is the accountant's for the whole population.
  claim = accounting.guarantee(
      RunConfig.parse(make_config(**SMALL)).release, steps=4, delta=0.02,
      level="task",
  )
  assert row["claimed"] == pytest.approx(claim.epsilon, rel=1e-3)
  assert row["attacked"].startswith("3 task by Poisson(0.05)")


def test_a_claim_that_is_too_small_ends_with_status_1(
    attack, monkeypatch, capsys, tmp_path
):
  honest = accounting.guarantee

  def tenth(*args, **kwargs):
    claim = honest(*args, **kwargs)
    return dataclasses.replace(claim, epsilon=claim.epsilon / 10)

  monkeypatch.setattr(claims.accounting, "guarantee", tenth)
  with pytest.raises(SystemExit) as caught:
    attack()
  captured = capsys.readouterr()
  assert caught.value.code == 1
  assert "the claim for level 'task' is refuted" in captured.err
  # What was found is written all the same.
  assert not json.loads((tmp_path / "audit.json").read_text())["holds"]
  assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "changes,part",
    [
        (dict(level="hospital"), "unknown level 'hospital'"),
        (dict(runs=20), "--runs=20 can show at most"),
        (dict(config=dict(mechanism=dict(
            clip_unit="task", noise_multiplier=0.0))), "nothing to audit"),
        (dict(config=dict(mechanism=dict(
            clip_unit="task", noise_multiplier=1.0,
            clipping="percentile_window", clip_percentile=50.0,
            clip_window=4))), "un-noised"),
        (dict(config=dict(plan=dict(stages=(
            "RandomAllocation(3)", "FixedSize(1)", "FixedSize(2)")))),
         "use --steps=3"),
        (dict(out="/proc/x"), "choose another --out"),
        (dict(out=__file__), "choose another --out"),
    ],
)
def test_mistakes_are_one_sentence_before_any_run(
    attack, monkeypatch, changes, part
):
  def no_run(*args, **kwargs):
    raise AssertionError("a run was begun")

  monkeypatch.setattr(claims.attack, "many_runs", no_run)
  with pytest.raises(ValueError) as caught:
    attack(**changes)
  assert part in str(caught.value) and "\n" not in str(caught.value)
