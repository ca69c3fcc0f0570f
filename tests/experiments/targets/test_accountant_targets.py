"""What is computed without training: Figure 12 of [M], plans of [P]."""

import dataclasses
import json

from matplotlib import image as image_lib
import pytest

from episodic_dp import accounting
from experiments import reproduce
from experiments import runs as runs_lib
from experiments.evidence import printed_epsilons
from experiments.targets import amplification
from experiments.targets import audited_plans
from experiments.targets import figure12
from experiments.targets import stages
from experiments.targets import table4


def test_the_moments_accountant_gives_the_printed_delta(tmp_path):
  run = figure12.runs("smoke")[0]
  found = figure12.finish(run, str(tmp_path))["delta"]
  printed = printed_epsilons.FIGURE12[run.labels["tasks"]]
  assert f"{found['moments']:.1e}" == printed.replace("e-6", "e-06")
  assert found["pld"] < found["moments"] / 1000 < 1 < found["subset"] * 1000
  again = accounting.epsilon(
      1.0, 1600 / 380_000, 1.0, steps=237, delta=found["pld"]
  )
  assert again == pytest.approx(1.5, rel=1e-3)
  assert runs_lib.load(run, tmp_path)["delta"] == found
  header, (row,) = figure12.table({run.name: {
      "labels": run.labels, "delta": found
  }})
  assert len(header) == len(row) and row[:2] == ["380000", "2.0e-6"]


def test_every_scale_has_all_points_of_the_figure():
  tasks = [run.labels["tasks"] for run in figure12.runs("cpu")]
  assert set(printed_epsilons.FIGURE12) == {tasks[0], tasks[-1]}
  assert len(tasks) == 10


def test_the_printed_theorem_is_below_the_truth_and_ours_is_not(tmp_path):
  *_, example, step = amplification.runs("cpu")
  rows = amplification.finish(step, str(tmp_path))["rows"]
  assert all(
      r["printed"] < r["exact"] <= r["corrected"] * (1 + 1e-9)
      for r in rows if r["direction"] == "remove"
  )  # fmt: skip
  (row, *_) = amplification.finish(example, str(tmp_path))["rows"]
  assert row["eta"] == pytest.approx(1 / 12)
  assert row["printed"] < row["corrected"] < row["plain"]


def test_outcomes_of_another_scale_are_refused(tmp_path):
  at_cpu, full = (figure12.runs(scale)[0] for scale in ("cpu", "full"))
  runs_lib.record(at_cpu, tmp_path, {})
  with pytest.raises(ValueError, match="another command"):
    runs_lib.load(full, tmp_path)


@pytest.mark.slow
def test_the_page_of_the_plans_says_how_wrong_the_theorem_is(tmp_path):
  reproduce.main("amplification", "smoke", str(tmp_path))
  page = (tmp_path / "amplification.md").read_text()
  assert "The printed theorem is unsound" in page
  assert page.count("| two stages") == 5 and page.count("| Example 3.1") == 3
  pixels = image_lib.imread(tmp_path / "amplification.png")[..., :3]
  assert (pixels.max(-1) - pixels.min(-1) > 0.3).sum() > 2000  # Lines.


@pytest.mark.slow
def test_steps_are_timed_for_both_learners(tmp_path):
  reproduce.main("table4", "smoke", str(tmp_path), only=["omniglot"])
  (o,) = json.loads((tmp_path / "table4.json").read_text())["runs"].values()
  times = {k: o["per_task"][k]["seconds"] for k in ("maml", "dp_maml")}
  assert o["ratio"] == pytest.approx(times["dp_maml"] / times["maml"])
  assert min(times.values()) > 0
  assert "| 39.9 ms | 54.7 ms | 1.37 |" in (tmp_path / "table4.md").read_text()


def test_full_size_is_that_of_the_paper():
  widths = {r.name: r.labels["width"] for r in table4.runs("full")}
  assert widths == {"omniglot": 64, "cifar_fs": 48, "mini_imagenet": 48}


@pytest.mark.slow
def test_training_in_stages_guarantees_every_level(tmp_path):
  reproduce.main("stages", "smoke", str(tmp_path))
  private, plain = json.loads(
      (tmp_path / "stages.json").read_text()
  )["runs"].values()  # fmt: skip
  assert list(private["epsilon"]) == ["participant", "glyph", "drawing"]
  assert all(0 < g["epsilon"] < 1 for g in private["epsilon"].values())
  page = (tmp_path / "stages.md").read_text()
  assert "ε of participant 0.5" in page and "| no | 2 | 0 | none |" in page
  assert plain["noise_multiplier"] == 0


@pytest.mark.parametrize("scale", ["cpu", "full"])
def test_stages_names_a_private_and_a_plain_run_of_every_preset(scale):
  runs = stages.runs(scale)
  assert len({run.name for run in runs}) == len(runs) == 8
  for run in runs:
    noise = run.load().mechanism.noise_multiplier
    assert (noise > 0) == run.labels["private"]


@pytest.mark.slow  # It compiles the step that is attacked.
def test_a_plan_that_is_audited_has_its_claim_and_what_was_measured(tmp_path):
  run, other = audited_plans.runs("smoke")
  small = dataclasses.replace(run, labels={**run.labels, "runs": 200})
  found = audited_plans.finish(small, str(tmp_path))
  assert 0 <= found["measured"] <= found["claimed"]
  assert "FixedSize" in found["stages"] and found["form"] == "unit"
  header, (row,) = audited_plans.table({run.name: found})
  assert len(header) == len(row) and row[-1] == "200"
  assert audited_plans.finding({run.name: found}).startswith("1 of 1 claims")
  assert other.name == "poisson_class"
  assert len(audited_plans.runs("cpu")) == 18
