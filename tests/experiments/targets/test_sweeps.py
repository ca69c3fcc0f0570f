"""The figures of DP-MAML: what their runs are, and what is said of them."""

import json

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.config import RunConfig
from episodic_dp.output import plotting
from experiments import reproduce
from experiments import targets
from experiments.targets import budgets
from experiments.targets import figure6a
from experiments.targets import figure6b
from experiments.targets import figure9
from experiments.targets import figure13_shots
from experiments.targets import figure13_starts
from experiments.targets import spending
from experiments.targets import sweeps
from experiments.targets import trajectories

_SWEPT = (
    "figure4", "figure6a", "figure6b", "figure6c", "figure7", "figure9",
    "figure10", "figure11",
)  # fmt: skip


def _outcome(run, mean, half=0.016):
  """What a finished run might have left."""
  score = dict(mean=mean, low=mean - half, high=mean + half, tasks=600)
  steps = run.load().steps
  private = run.labels.get("clipping") != sweeps.RAW
  spent = {"epsilon": 0.4984 if private else "inf", "delta": 1e-6}
  return {
      "labels": dict(run.labels),
      "steps": steps,
      "accuracy": dict.fromkeys(("single", "ensemble", "untrained"), score),
      "epsilon": {"participant": spent},
      "cpu_seconds": 100.0,
      "config": run.load().to_dict(),
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
          "clip_norm": [20.0, 8.0, 8.0],
      },
  }


@pytest.mark.parametrize("scale", targets.SCALES)
def test_figures_share_the_runs_of_their_common_points(scale):
  commands = {}
  names = {}
  for name in _SWEPT:
    runs = targets.load(name).runs(scale)
    names[name] = {run.name for run in runs}
    assert len(names[name]) == len(runs)
    for run in runs:
      expected = commands.setdefault(run.name, run.command())
      assert run.command() == expected, (name, run.name)
  assert names["figure7"] == names["figure9"] == names["figure11"]
  assert names["figure7"] <= names["figure6b"]
  assert names["figure7"] <= names["figure10"]
  assert names["figure4"] & names["figure6a"] or scale == "smoke"
  assert names["figure6c"] & names["figure10"]


def test_a_point_has_the_size_and_the_privacy_of_the_paper():
  for scale, participants in (("full", 400_000), ("cpu", 40_000)):
    run = sweeps.runs([sweeps.Point()], scale)[0]
    config = RunConfig.parse(run.load())
    release = config.release
    rate = plan.inclusion_rate(
        release.hierarchy, release.plan, level=budgets.LEVEL
    )
    assert rate == run.labels["rate"] == 1600 / 400_000
    assert config.steps == 250
    assert round(participants * rate) == round(run.labels["tasks"])
    found = accounting.guarantee(
        release, steps=250, delta=1e-6, level=budgets.LEVEL
    )
    assert 0.49 < found.epsilon < 0.5
  assert (config.model.width, config.learner.inner_steps) == (8, 1)


def test_the_raw_percentile_has_no_epsilon():
  run = sweeps.runs([sweeps.Point(clipping=sweeps.RAW)], "cpu")[0]
  release = RunConfig.parse(run.load()).release
  # Twice the tasks of a step, above the norms of which it falls.
  assert release.mechanism.clip_window == 2 * round(run.labels["tasks"])
  assert not release.mechanism.guaranteed
  found = accounting.guarantee(
      release, steps=250, delta=1e-6, level=budgets.LEVEL
  )
  assert found.epsilon == float("inf")
  assert spending.costs([_outcome(run, 0.5)])[0] == "none"


def test_three_epsilons_stand_beside_a_point():
  run = sweeps.runs([sweeps.Point()], "cpu")[0]
  # [M] prints 1.5 for its 1.517; 0.762 is the z of design by PLD.
  assert spending.costs([_outcome(run, 0.5)]) == ["0.4984", "1.517", "0.762"]
  plain = sweeps.runs([sweeps.Point(noise=0)], "cpu")[0]
  assert spending.costs([_outcome(plain, 0.5)])[1:] == ["", ""]


def test_an_order_is_claimed_where_intervals_separate_alone():
  runs = figure6b.runs("cpu")[:3]
  outcomes = {
      run.name: _outcome(run, mean)
      for run, mean in zip(runs, (0.6, 0.61, 0.57))
  }
  header, rows = figure6b.table(outcomes)
  found = [dict(zip(header, row)) for row in rows]
  cell = "clearly below the best of its line"
  assert [row[cell] for row in found] == ["no", "the best", "yes"]
  assert [row["[M]"] for row in found] == ["93 %", "", ""]
  assert found[0]["tasks a step, expected"] == "160"
  assert figure6b.finding(outcomes) == (
      "Over noise multiplier z: L = 1600, k = 90: best at 2 (61.0 % ± 1.6),"
      " clearly below it at 3."
  )
  assert figure6b.finding({runs[0].name: outcomes[runs[0].name]}) == ""


def test_several_keys_are_one_point_from_lowest_to_highest():
  runs = sweeps.runs([sweeps.Point()], "full")
  found = [_outcome(run, mean) for run, mean in zip(runs, (0.5, 0.6, 0.7))]
  assert sweeps.interval(found) == pytest.approx((60, 50, 70))
  drawn = trajectories.curve(found)
  assert drawn.middle == pytest.approx([50, 60])
  assert (drawn.low[1], drawn.high[1]) == pytest.approx((50, 70))


def test_a_fixed_norm_stands_at_the_share_of_norms_within_it():
  runs = [r for r in figure6a.runs("cpu") if r.labels["clipping"] == "fixed"]
  header, rows = figure6a.table({runs[0].name: _outcome(runs[0], 0.5)})
  row = dict(zip(header, rows[0]))
  assert row["C"] == "1"
  assert row[header[1]] == "80"


def test_a_loss_has_converged_where_it_stays_near_its_last():
  assert figure9.converged([2.0, 1.5, 1.04, 1.2, 1.05, 1.0]) == 5
  assert figure9.converged([1.0]) == 1
  assert trajectories.smooth([1, 2, 3, 4], 2) == [1, 1.5, 2.5, 3.5]


@pytest.mark.parametrize("name", _SWEPT)
def test_every_figure_has_a_table_and_a_picture(name):
  made = targets.load(name)
  # Some of the runs are finished.
  runs = [run for run in made.runs("cpu") if run.labels["noise"] <= 1]
  outcomes = {run.name: _outcome(run, 0.6) for run in runs[-2:]}
  header, rows = made.table(outcomes)
  assert rows and all(len(row) == len(header) for row in rows)
  figure = plotting.figure(4.8)
  made.draw(outcomes, figure)
  drawn = [line for axes in figure.axes for line in axes.lines]
  assert len(drawn) > 1
  assert all(axes.get_xlabel() or axes.get_ylabel() for axes in figure.axes)
  # One point a line tells nothing of an order.
  alone = name in ("figure6a", "figure6b")
  assert made.finding(outcomes).endswith(".") != alone


def test_shots_state_the_epsilon_that_is_true():
  outcomes = {}
  for run in figure13_shots.runs("cpu"):
    outcomes[run.name] = _outcome(run, 0.5)
    config = RunConfig.parse(run.load())
    epsilon = accounting.guarantee(
        config.release, steps=config.steps, delta=1e-5, level="drawing"
    ).epsilon
    if run.labels["epsilon"]:
      assert 0.99 * run.labels["epsilon"] <= epsilon <= run.labels["epsilon"]
    outcomes[run.name]["epsilon"] = {"drawing": {
        "epsilon": epsilon if epsilon < float("inf") else "inf"
    }}  # fmt: skip
  header, rows = figure13_shots.table(outcomes)
  found = [dict(zip(header, row)) for row in rows]
  assert [row["[M]"] for row in found] == ["", "", "92 %", "", ""]
  assert found[2]["ε of a drawing, as it ran"] == "45.81"
  assert found[2]["ε of a drawing claimed in [M]"] == "1.18"
  figure = plotting.figure(4.8)
  figure13_shots.draw(outcomes, figure)
  labels = figure.axes[0].get_legend_handles_labels()[1]
  assert "[M], at its size" in labels and "more noise, ε = 1.18" in labels
  assert "a claimed ε of 1.18" in figure13_shots.finding(outcomes)


def test_starts_spend_one_budget_and_are_measured_when_all_are_trained(
    tmp_path,
):
  runs = figure13_starts.runs("cpu")
  spent = []
  for run in runs[:-1]:
    config = RunConfig.parse(run.load())
    if run.labels["private"]:
      level = config.release.mechanism.clip_unit
      spent.append(
          accounting.guarantee(
              config.release, steps=config.steps, delta=1e-6, level=level
          ).epsilon
      )
  assert len(spent) == 2
  assert all(1.49 < epsilon <= 1.5 for epsilon in spent)
  assert runs[-1].command().startswith("episodic-dp fine-tune --config=cifar")
  assert "--workdir=DIR/start_pre_training,DIR/" in runs[-1].command()
  with pytest.raises(training.RunError) as e:
    figure13_starts.finish(runs[-1], tmp_path, shared={}, data_dir=None)
  assert "--only=start_pre_training,start_dp_pre_training" in str(e.value)


def test_the_table_of_starts_says_what_is_clearly_below_the_best():
  names = ("random", "start_pre_training", "start_maml_1_shot")
  starts = []
  for name, mean in zip(names, (0.3, 0.49, 0.5)):
    scores = {"1": dict(mean=mean, low=mean - 0.02, high=mean + 0.02)}
    learner = None if name == "random" else "maml"
    starts.append(dict(
        name=name, accuracy=scores, learner=learner, steps=100, guarantee=None
    ))  # fmt: skip
  outcomes = {"a": {"labels": {"trained": 1}, "initialisations": starts}}
  header, rows = figure13_starts.table(outcomes)
  found = [dict(zip(header, row)) for row in rows]
  below = [row["clearly below the best when tested with"] for row in found]
  assert below == ["1", "", ""]
  assert [row["initialisation"] for row in found] == [
      "random", "pre-training", "MAML"
  ]  # fmt: skip
  assert [row["guarantee"] for row in found] == ["no data used", "none", "none"]
  assert "MAML 50.0 % ± 2.0, pre" in figure13_starts.finding(outcomes)
  figure = plotting.figure(4.8)
  figure13_starts.draw(outcomes, figure)
  labels = figure.axes[0].get_legend_handles_labels()[1]
  assert set(labels) == {"chance", "random", "pre-training", "MAML"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Of all trials: points that figures share are trained once."""
  return tmp_path_factory.mktemp("figures")


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on_with_what_is_missing(
    folder, monkeypatch, capsys
):
  trained = []
  train = training.train

  def counted(spec, workdir, **options):
    trained.append(workdir.name)
    return train(spec, workdir, **options)

  monkeypatch.setattr(training, "train", counted)
  names = [run.name for run in targets.load("figure6a").runs("smoke")]
  reproduce.main("figure6a", "smoke", str(folder), only=names[:1])
  assert "1 of 2 runs are finished" in capsys.readouterr().out
  reproduce.main("figure6a", "smoke", str(folder))
  assert trained == names
  found = json.loads((folder / "figure6a.json").read_text())
  assert [*found["runs"]] == names


@pytest.mark.slow
@pytest.mark.parametrize("name", [*_SWEPT, "figure13_shots", "figure13_starts"])
def test_every_figure_is_made_of_built_in_data(name, folder):
  reproduce.main(name, "smoke", str(folder))
  found = json.loads((folder / f"{name}.json").read_text())
  assert len(found["runs"]) == len(targets.load(name).runs("smoke"))
  assert (folder / f"{name}.png").stat().st_size > 10_000
  assert "| --- |" in (folder / f"{name}.md").read_text()
