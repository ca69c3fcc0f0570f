"""The pictures of a comparison: what is drawn where."""

import numpy as np
import pytest

from episodic_dp.analysis import compare
from episodic_dp.analysis import compare_plots
from episodic_dp.training import metrics


def _run(name, *, epsilon=1.0, accuracy=0.5, curve=(), way=5):
  return compare.Run(
      name=name, steps=20, planned_steps=20,
      scores={"validation": _score(accuracy, 0.1)},
      stated={"writer": compare.Stated(epsilon=epsilon, delta=1e-5, steps=20)},
      seconds=None, setting={"episode.way": way},
      validations=tuple(
          metrics.Validated(step, v, v - 0.1, v + 0.1) for step, v in curve
      ),
  )  # fmt: skip


def _score(mean, half):
  return compare.Measured(
      kind="accuracy", mean=mean, low=mean - half, high=mean + half, step=20
  )


def _mean(runs, value, half):
  return compare.Mean(
      of=tuple(run.name for run in runs), name=f"mean of {len(runs)}: z=1",
      scores={"validation": _score(value, half)}, stated=runs[0].stated,
      seconds=None,
  )  # fmt: skip


@pytest.fixture
def found():
  """Two keys of one setting, another setting, and one without privacy."""
  keys = tuple(
      _run(f"a/key={k}", accuracy=v, curve=((0, 0.2), (10, v)))
      for k, v in enumerate((0.4, 0.6))
  )
  other = _run("a/z=2", epsilon=0.25, accuracy=0.3, curve=((0, 0.2), (20, 0.3)))
  plain = _run("a/plain", epsilon=float("inf"), accuracy=0.9)
  return compare.Comparison(
      groups=((keys, _mean(keys, 0.5, 0.25)), ((other,), None),
              ((plain,), None))  # fmt: skip
  )


def _bars(axes):
  """x -> (low, high) of the error bars."""
  found = {}
  for container in axes.containers:
    for collection in container[2]:
      for (x, low), (_, high) in collection.get_segments():
        found[round(float(x), 6)] = (round(float(low), 6),
                                     round(float(high), 6))  # fmt: skip
  return found


def test_settings_stand_at_their_epsilon_with_their_intervals(found):
  figure = compare_plots.against_epsilon(found)
  private, plain = figure.axes
  assert _bars(private) == {1.0: (25.0, 75.0), 0.25: (20.0, 40.0)}
  # What has no guarantee has no place on the axis of epsilon.
  assert [*_bars(plain).values()] == [(80.0, 100.0)]
  assert "writer" in private.get_xlabel() and "1e-05" in private.get_xlabel()
  assert "each run alone" in private.get_xlabel()
  chance = [line for line in private.lines if line.get_label() == "chance"]
  assert chance[0].get_ydata()[0] == 20.0


def test_curves_are_the_mean_over_keys_with_students_interval(found):
  (axes,) = compare_plots.over_steps(found).axes
  lines = {line.get_label(): line for line in axes.lines}
  mean = lines["mean of 2: z=1"]
  np.testing.assert_allclose(mean.get_xdata(), [0, 10])
  np.testing.assert_allclose(mean.get_ydata(), [20, 50])
  band = axes.collections[0].get_datalim(axes.transData)
  half = 12.706205 * 100 * np.std([0.4, 0.6], ddof=1) / np.sqrt(2)
  assert band.y1 == pytest.approx(50 + half, rel=1e-5)
  np.testing.assert_allclose(lines["z=2"].get_ydata(), [20, 30])


def test_what_cannot_be_drawn_is_left_out(found, tmp_path):
  one = compare.Comparison(groups=found.groups[2:])
  assert compare_plots.write(one, tmp_path) == []
  assert [p.name for p in compare_plots.write(found, tmp_path)] == [
      "score_against_epsilon.png", "learning_curves.png"
  ]
