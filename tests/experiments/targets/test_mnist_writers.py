"""The price of privacy for 539 people: what its runs spend, and its table."""

import pytest

from episodic_dp import accounting
from episodic_dp.config import RunConfig
from episodic_dp.output import plotting
from experiments.targets import mnist_writers


@pytest.mark.parametrize("scale", ["cpu", "full"])
def test_runs_spend_their_budget_for_a_writer_and_no_more(scale):
  runs = mnist_writers.runs(scale)
  assert len({run.name for run in runs}) == len(runs)
  checked = set()
  for run in runs:
    config, asked = run.load(), run.labels["epsilon"]
    assert (config.mechanism.noise_multiplier > 0) == (asked is not None)
    if asked is None or (run.labels["shot"], asked) in checked:
      continue
    checked.add((run.labels["shot"], asked))
    epsilon = accounting.guarantee(
        RunConfig.parse(config).release,
        steps=config.steps,
        delta=mnist_writers.DELTA,
        level="writer",
    ).epsilon
    assert config.delta == mnist_writers.DELTA
    assert 0.99 * asked <= epsilon <= asked
  assert len(checked) == 8


def _outcome(shot, epsilon, key, mean):
  score = dict(mean=mean, low=mean - 0.01, high=mean + 0.01, tasks=600)
  spent = {
      level: {"epsilon": epsilon - at / 8 if epsilon else "inf"}
      for at, level in enumerate(("writer", "digit", "image"))
  }
  return {
      "labels": dict(shot=shot, epsilon=epsilon, key=key),
      "accuracy": dict.fromkeys(("single", "ensemble", "untrained"), score),
      "epsilon": spent,
      "noise_multiplier": 2.0 if epsilon else 0.0,
      "seconds": 10.0,
      "cpu_seconds": 10.0,
  }


def test_the_table_has_a_row_for_each_budget_and_every_level():
  outcomes = {
      str(i): _outcome(*labels)
      for i, labels in enumerate([
          (1, None, 0, 0.9), (1, 8, 0, 0.7), (1, 8, 1, 0.8), (5, 8, 0, 0.9),
      ])
  }  # fmt: skip
  header, rows = mnist_writers.table(outcomes)
  found = [dict(zip(header, row)) for row in rows]
  assert [row["images of a digit"] for row in found] == ["1", "1", "5"]
  assert [row["ε of a writer"] for row in found] == ["none", "8.0", "8.0"]
  assert found[1]["of a writer's digit"] == "7.875"
  assert found[1]["test accuracy, last checkpoint"] == "75.0 % (70.0 to 80.0)"
  figure = plotting.figure(4.8)
  mnist_writers.draw(outcomes, figure)
  labels = figure.axes[0].get_legend_handles_labels()[1]
  assert "private, 5 images of a digit" in labels and "chance" in labels
  assert "not private, 1" in labels and "not private, 5" not in labels
