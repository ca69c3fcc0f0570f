"""Tables, figures and pages: budgets that hold, cells, and pictures."""

import functools
import re
import shlex

from matplotlib import image as image_lib
import pytest

from episodic_dp import accounting
from episodic_dp import options
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.config import presets
from episodic_dp.config import pvi
from episodic_dp.run import Run
from experiments import published
from experiments import reproduce
from experiments import results_pages
from experiments import runs as runs_lib
from experiments import targets
from experiments.targets import budgets
from experiments.targets import computed
from experiments.targets import dp_maml
from experiments.targets import panels
from experiments.targets import starts
from tests.stored import json_of

STORED = results_pages.read()


@functools.cache
def runs_of(name, scale="cpu"):
  return targets.load(name).runs(scale)


def spent(run, level="participant"):
  config = run.load()
  return accounting.guarantee(
      config.release, steps=config.steps, delta=config.delta, level=level
  ).epsilon


def rows_of(name, outcomes):
  """Return the rows of a table as dictionaries."""
  header, rows = targets.load(name).table(outcomes)
  assert all(len(row) == len(header) for row in rows)
  return [dict(zip(header, row)) for row in rows]


def score(mean, half=0.01):
  return dict(mean=mean, low=mean - half, high=mean + half, tasks=600)


def outcome(run, mean, half=0.016):
  """Return what a finished run of DP-MAML might have left."""
  steps = run.load().steps
  epsilon = "inf" if run.labels.get("clipping") == dp_maml.RAW else 0.4984
  return {
      "labels": dict(run.labels),
      "steps": steps,
      "accuracy": dict.fromkeys(
          ("single", "ensemble", "untrained"), score(mean, half)
      ),
      "epsilon": {"participant": {"epsilon": epsilon, "delta": 1e-6}},
      "noise_multiplier": 1.0,
      "seconds": 100.0,
      "cpu_seconds": None,
      "config": run.load().as_json(),
      "validation": {
          "steps": [steps // 2, steps],
          "values": [mean - 0.1, mean],
          "low": [mean - 0.12, mean - 0.02],
          "high": [mean - 0.08, mean + 0.02],
      },
      "diagnostics": {
          "loss": [1.5, 1.0, 1.0],
          "norm": [10.0, 5.0, 5.0],
          "clipped": [0.1, 0.2, 0.3],
      },
  }


def slow_if(name, *names):
  return pytest.param(name, marks=pytest.mark.slow if name in names else ())


@pytest.mark.parametrize(
    "name",
    [slow_if(name, "figure13_shots", "table3") for name in targets.NAMES],
)
def test_every_target_has_runs_that_its_commands_repeat(name):
  names = [run.name for run in runs_of(name)]
  assert names and len(set(names)) == len(names)
  for run in runs_of(name):
    if isinstance(run, runs_lib.Computed):
      assert f"--target={name} --scale=cpu --only={run.name}" in run.command()
      continue
    preset = run.config.rpartition(".")[2]
    assert f"episodic-dp {run.program} --config={preset}:" in run.command()
    known = presets.PVI_NAMES if run.program == "pvi" else presets.NAMES
    assert preset in known
    words = shlex.split(run.command())
    for field, value in run.overrides.items():
      assert f"--config.{field}={value}" in words
    assert ("--data_dir=DATA" in run.command()) != run.generated


@pytest.mark.parametrize(
    "name",
    [
        slow_if(name, "figure6c", "figure7", "figure9", "figure11")
        for name in STORED
    ],
)
def test_stored_results_are_drawn(name):
  stored = STORED[name]
  if "target" not in stored:
    pytest.skip("the result of a command")
  assert rows_of(name, stored["runs"])
  figure = results_pages.picture(targets.load(name), stored["runs"])
  assert sum(len(axes.lines) for axes in figure.axes) > 1


@pytest.mark.parametrize(
    "name,level,epsilons",
    [
        ("learners", "participant", {1.5}),
        pytest.param(
            "table3", "participant", {0.5, 6.1, 9.0}, marks=pytest.mark.slow
        ),
        pytest.param(
            "mnist_writers", "writer", {1, 2, 4, 8}, marks=pytest.mark.slow
        ),
        pytest.param(
            "figure13_shots", "drawing", {1.18}, marks=pytest.mark.slow
        ),
        ("figure13_starts", "clip_unit", {1.5}),
    ],
)
def test_private_runs_spend_their_budget_and_no_more(name, level, epsilons):
  checked = {}
  for run in runs_of(name):
    config = run.load()
    mechanism = config.release.mechanism
    named = run.labels.get("epsilon", True)
    if not (named and mechanism.noise_multiplier and mechanism.guaranteed):
      continue
    unit = mechanism.clip_unit if level == "clip_unit" else level
    key = (config.plan.stages, config.steps, str(mechanism))
    if key not in checked:
      checked[key] = spent(run, unit)
    asked = run.labels.get("epsilon") or min(epsilons)
    assert 0.98 * asked <= checked[key] <= asked, run.name
  assert checked


def test_cells_of_several_keys_are_means_with_their_spread():
  outcomes = {
      str(i): {
          "labels": {"seed": i},
          "accuracy": {"single": score(0.5 + i / 10)},
          "epsilon": {"drawing": {"epsilon": 1.17, "delta": 1e-5}},
          "seconds": 10.0,
          "cpu_seconds": None,
      }
      for i in range(3)
  }
  (same,) = panels.group(outcomes, "seed")
  assert panels.accuracy(same) == "60.0 % (50.0 to 70.0)"
  assert panels.interval(same) == pytest.approx((60, 50, 70))
  assert panels.accuracy(same[:1]) == "50.0 % ± 1.0"
  assert panels.ensemble(same) == "-"
  assert panels.seconds(same) == "10 s" and panels.cpu_seconds(same) == "-"
  assert panels.epsilon_of(same, "drawing") == "1.17"
  assert panels.epsilon_of(same, "class") == "none"


# Figures of DP-MAML -----------------------------------------------------------


@pytest.mark.parametrize("scale", targets.SCALES)
def test_figures_share_the_runs_of_their_common_points(scale):
  commands, names = {}, {}
  for name in dp_maml.TARGETS:
    runs = runs_of(name, scale)
    names[name] = {run.name for run in runs}
    for run in runs:
      assert commands.setdefault(run.name, run.command()) == run.command()
  assert names["figure7"] == names["figure9"] == names["figure11"]
  assert names["figure7"] <= names["figure6b"] & names["figure10"]
  assert names["figure6c"] & names["figure10"]


def test_a_point_has_the_size_and_the_privacy_of_the_paper():
  run = dp_maml.runs([dp_maml.Point()], "cpu")[0]
  release = run.load().release
  rate = plan.inclusion_rate(
      release.hierarchy, release.plan, level=budgets.LEVEL
  )
  assert rate == run.labels["rate"] == 1600 / 400_000
  assert run.load().steps == 250 and 0.49 < spent(run) < 0.5
  (cells,) = rows_of("figure6b", {run.name: outcome(run, 0.5)})
  # [M] prints 1.5 for its 1.517; 0.762 is the z that would spend 1.5 by PLD.
  assert [cells[name] for name in budgets.COSTS] == ["0.4984", "1.517", "0.762"]


def test_an_order_is_claimed_only_where_intervals_separate():
  runs = runs_of("figure6b")[:3]
  found = rows_of("figure6b", {
      run.name: outcome(run, mean)
      for run, mean in zip(runs, (0.6, 0.61, 0.57))
  })
  cell = "clearly below the best of its line"
  assert [row[cell] for row in found] == ["no", "the best", "yes"]
  assert [row["[M]"] for row in found] == ["93 %", "", ""]


def test_a_fixed_norm_is_placed_at_the_share_of_norms_within_it():
  (run,) = [r for r in runs_of("figure6a") if r.labels["clip_norm"] == 1.0]
  (row,) = rows_of("figure6a", {run.name: outcome(run, 0.5)})
  assert row["C"] == "1" and "80" in row.values()


def test_a_loss_has_converged_where_it_stays_near_its_last():
  assert dp_maml.converged([2.0, 1.5, 1.04, 1.2, 1.05, 1.0]) == 5
  assert dp_maml.converged([1.0]) == 1
  assert dp_maml.smooth([1, 2, 3, 4]) == [1, 1.5, 2, 2.5]


# Other tables -----------------------------------------------------------------


def test_every_learner_that_meta_learns_is_compared():
  assert {run.load().learner.name for run in runs_of("learners")} == {
      name for name in options.LEARNERS if name != options.SUPERVISED
  }


@pytest.mark.slow
def test_cells_of_table_3_are_those_of_the_paper_with_means_of_keys():
  runs = runs_of("table3")
  cells = {
      (run.labels["data"], *sizes)
      for run in runs for sizes in ((run.labels["way"], 1), *run.further)
  }
  assert cells == set(published.TABLE3)
  keys = [
      run for run in runs
      if run.name.startswith("cifar_fs_5_way_random_0.5")
      and run.labels["key"] < 2
  ]
  outcomes = {
      run.name: outcome(run, mean) | {
          "tests": {"5-way 5-shot": {"single": score(0.6)}}
      }
      for run, mean in zip(keys, (0.49, 0.52))
  }
  first, second = targets.load("table3").more(outcomes)["rows"]
  assert (first["shot"], second["shot"], first["keys"]) == (1, 5, 2)
  assert first["accuracy"] == pytest.approx(50.5)
  assert first["published"] == 48.1 and first["epsilon"] == 0.4984
  assert second["accuracy"] == pytest.approx(60)


def test_the_printed_theorem_is_below_the_truth_and_ours_is_not(tmp_path):
  *_, example, step = runs_of("amplification")
  made = targets.load("amplification")
  rows = made.finish(step, tmp_path)["rows"]
  assert all(
      r["printed"] < r["exact"] <= r["corrected"] * (1 + 1e-9)
      for r in rows if r["direction"] == "remove"
  )
  row = made.finish(example, tmp_path)["rows"][0]
  assert row["eta"] == pytest.approx(1 / 12)
  assert row["printed"] < row["corrected"] < row["plain"]


@pytest.mark.slow
def test_the_moments_accountant_gives_the_printed_delta(tmp_path):
  run = runs_of("figure12")[0]
  found = targets.load("figure12").finish(run, tmp_path)["delta"]
  (row,) = rows_of("figure12", {run.name: runs_lib.load(run, tmp_path)})
  printed = float(row["δ published"])
  assert found["moments"] == pytest.approx(printed, rel=0.02)
  assert found["pld"] < found["moments"] / 1000 < 1 < found["subset"] * 1000
  assert {n: t for n, (t, _) in computed.TIMES.items()}["omniglot"] == 39.9


def test_starts_are_measured_when_all_are_trained(tmp_path):
  *_, last = runs_of("figure13_starts")
  assert "--target=figure13_starts" in last.command()
  with pytest.raises(training.RunError, match="start_dp_pre_training"):
    starts.finish(last, tmp_path, shared=runs_lib.Shared(), data_dir=None)


# Pages ------------------------------------------------------------------------


def test_the_committed_pages_are_those_that_write_makes():
  made = results_pages.pages()
  committed = {
      path.name: path.read_text(encoding="utf-8")
      for path in results_pages.FOLDER.glob("*.md")
  }
  assert made == committed, "run python -m experiments.reproduce --write"
  links = re.findall(r"\]\(([^)#]+)", "\n".join(made.values()))
  assert all((results_pages.FOLDER / link).exists() for link in links)


def test_a_page_of_accuracies_says_how_queries_came():
  together = {"accuracy": {"mean": 0.5}}
  alone = together | {"queries": runs_lib.ALONE}
  by_group = together | {"config": {"model": {"norm": "group"}}}
  said = results_pages.protocol
  assert said({"a": alone}) == said({"a": by_group})
  assert runs_lib.ALONE in said({"a": alone})
  assert "whole batches" in said({"a": alone, "b": together})


# Versions whose stored configurations this one reads.
_READ = ("2.0.0", "2.1.0", "3.0.0")


@pytest.mark.parametrize("name", STORED)
def test_a_stored_configuration_is_read_or_its_page_names_its_version(name):
  runs = STORED[name].get("runs")
  if not isinstance(runs, dict):
    return
  page = (results_pages.FOLDER / f"{name}.md").read_text(encoding="utf-8")
  parse = pvi.parse if name == "pvi_adult" else Run.parse
  for run, outcome in runs.items():
    assert f"version {outcome['version']} (" in page, run
    if outcome.get("config") is None:
      continue
    if outcome["version"] in _READ:
      assert parse(outcome["config"]).seed == outcome["config"]["seed"]
    else:
      with pytest.raises(plan.PlanError, match="expected one of the fields"):
        parse(outcome["config"])


def test_a_table_of_several_versions_names_that_of_each_row():
  rows = rows_of("table3", STORED["table3"]["runs"])
  by_version = {row["version"] for row in rows}
  assert "2.0.0" in by_version and len(by_version) > 1
  text = (results_pages.FOLDER / "README.md").read_text(encoding="utf-8")
  assert all(f"| {version} |" in text for version in by_version)


def _row(data, accuracy, **fields):
  return dict(
      data=data, way=5, shot=1, private=True, learner="protonet", keys=3,
      epsilon=0.49, accuracy=accuracy, version="2.0.0",
  ) | fields


def test_one_image_a_call_and_least_in_our_favour_comes_first():
  text = results_pages.first_page([
      _row("omniglot", 97.0),
      _row("omniglot", 98.5, private=False),
      _row("cifar_fs", 46.1),
      _row("omniglot", 95.0, clipping="percentile", epsilon="inf"),
      _row("cifar_fs", 55.0, queries="one image a call", keys=1),
  ], {})
  lines = [line for line in text.splitlines() if line.startswith("| [")]
  assert "55.0 (prototypical network; keys: 1)" in lines[0]
  assert "46.1" in lines[1] and "95.0" in lines[2] and "97.0" in lines[3]
  assert "no guarantee" in lines[2] and "| 98.5 |" in lines[3]
  assert len([x for x in text.splitlines() if "| - | - | - |" in x]) == 4


@pytest.mark.parametrize("data", ["omniglot", "mini_imagenet"])
def test_published_epsilons_are_those_of_the_sampler_not_the_claim(data):
  drawn = published.epsilon(data, poisson=False)
  assert published.epsilon(data, poisson=True) < published.EPSILON < drawn


# Every target, trained --------------------------------------------------------

_QUICK = {"amplification"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A folder of all trials: points that figures share are trained once."""
  return tmp_path_factory.mktemp("trials")


@pytest.mark.parametrize(
    "name",
    [
        slow_if(name, *{*targets.NAMES} - _QUICK)
        for name in targets.NAMES
        if name != "pvi_adult"  # It reads data.
    ],
)
def test_every_target_runs_at_the_smallest_scale(name, folder):
  out = folder / name[:7]
  reproduce.main(name, "smoke", str(out))
  found = json_of(out / f"{name}.json")
  assert len(found["runs"]) == len(runs_of(name, "smoke"))
  assert "| --- |" in (out / f"{name}.md").read_text()
  pixels = image_lib.imread(out / f"{name}.png")[..., :3]
  assert (pixels.max(-1) - pixels.min(-1) > 0.3).sum() > 50  # A dot.
