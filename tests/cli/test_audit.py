"""The audit's command line: numbers, files, the verdict, errors."""

import dataclasses

import pytest

from episodic_dp import accounting
from episodic_dp.auditing import claims
from episodic_dp.run import Run
from tests.auditing import planted
from tests.stored import json_of

SMALL = dict(
    plan=dict(
        stages=("Poisson(0.05)", "FixedSize(1)", "FixedSize(2)"),
        episode=dict(way=1, shot=1, query=1),
    ),
    mechanism=dict(clip_unit="task", noise_multiplier=0.4),
)


@pytest.fixture
def attack(call, make_config, tmp_path):
  """attack(*flags, field=value) -> the end of a small audit."""

  def run(*flags, **fields):
    path = tmp_path / "small.py"
    config = make_config(**SMALL | fields)
    path.write_text(f"def get_config():\n  return {config!r}\n")
    return call(
        "audit", f"--config={path}", "--level=task", "--runs=3000",
        "--steps=4", f"--out={tmp_path}", *flags,
    )

  return run


@pytest.mark.slow
def test_measured_is_below_claimed_for_a_small_audit(make_config):
  result = claims.audit(
      Run.parse(make_config(**SMALL)).release, "task",
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
      Run.parse(make_config(**SMALL)).release, steps=4, delta=0.02,
      level="task",
  )
  assert row["claimed"] == pytest.approx(claim.epsilon, rel=1e-3)
  assert row["attacked"].startswith("task (3): Poisson(0.05)")


def test_a_measured_epsilon_is_rounded_down():
  row = {
      "level": "task", "claimed": 1.0, "measured": 1.23458, "share": 1.23,
      "bound": {"direction": "add"}, "neighbours": "one", "assumptions": [],
      "attacked": "", "distance": 0.0, "allowed_distance": 1.0,
  }
  result = {
      "levels": [row], "delta": 0.01, "confidence": 0.95, "steps": 1, "runs": 9,
      "noise_multiplier": 1.0, "clip_unit": "task", "stages": [],
      "not_audited": {},
  }
  assert "1.234 " in claims.table(result)
  assert "at least 1.234 at" in claims.verdict(result)


@pytest.mark.slow
def test_a_claim_that_is_too_small_ends_with_status_1(
    attack, monkeypatch, tmp_path
):
  honest = accounting.guarantee

  def tenth(*args, **kwargs):
    claim = honest(*args, **kwargs)
    return dataclasses.replace(claim, epsilon=claim.epsilon / 10)

  monkeypatch.setattr(claims.accounting, "guarantee", tenth)
  done = attack("--runs=1000")
  assert done.returncode == 1
  assert "the claim for level 'task' is refuted" in done.stderr
  # The result is written all the same.
  assert not json_of(tmp_path / "audit.json")["holds"]
  assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_half_the_noise_ends_with_status_1(attack, monkeypatch):
  planted.MISTAKES["half the noise"](monkeypatch)
  done = attack()
  assert done.returncode == 1
  assert "independence of the steps is not as claimed" in done.stderr


@pytest.mark.parametrize(
    "flags, fields, part",
    [
        (("--level=hospital",), {}, "unknown level 'hospital'"),
        (("--runs=20",), {}, "--runs=20 can show at most"),
        (("--config.mechanism.noise_multiplier=0",), {}, "no claim to audit"),
        ((), dict(mechanism=dict(
            clip_unit="task", noise_multiplier=1.0,
            clipping="percentile_window", clip_percentile=50.0,
            clip_window=4)), "no claim to audit"),
        ((), dict(plan=dict(stages=(
            "RandomAllocation(3)", "FixedSize(1)", "FixedSize(2)"))),
         "use --steps=3"),
        (("--out=/proc/x",), {}, "/proc/x"),
        ((f"--out={__file__}",), {}, "is not a folder"),
    ],
)
def test_mistakes_are_one_sentence_before_any_run(
    attack, monkeypatch, flags, fields, part
):
  def no_run(*args, **kwargs):
    raise AssertionError("a run was started")

  monkeypatch.setattr(claims.attack, "many_runs", no_run)
  done = attack(*flags, **fields)
  assert done.returncode == 1 and not done.stdout
  assert part in done.stderr.splitlines()[-1]
