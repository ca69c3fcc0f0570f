"""Tables, sentences and pictures."""

import dataclasses

from matplotlib import image as image_lib
import pytest

from episodic_dp import accounting
from episodic_dp import training
from episodic_dp.training import evaluation
from episodic_dp.training import reporting
from tests import plans


def _guarantees(copies=False):
  hierarchy = plans.tree("user class image", 500, 5, 4, copies=copies)
  release = plans.release(hierarchy, plans.sampling(0.1, 3, 2), "user")
  return accounting.guarantees(release, steps=3, delta=1e-5)


def test_every_level_is_a_line_that_states_no_less_than_epsilon():
  guarantees = _guarantees()
  lines = reporting.guarantee_lines(guarantees, 3)
  assert len(lines) == 3
  for line, (level, guarantee) in zip(lines, guarantees.items()):
    words = line.split()
    assert words[0] == level
    stated = float(words[words.index("epsilon") + 2])
    assert guarantee.epsilon <= stated <= 1.001 * guarantee.epsilon
    assert "delta = 1e-05 after step 3" in line


def test_shared_records_and_levels_without_a_guarantee_are_said():
  result = training.Result(
      steps=3, planned=3, stopped="done", guarantees=_guarantees(copies=True),
      seconds=1, unproved=("class", "image"),
  )
  for level in ("class", "image"):
    line = f"\n  {level}  no guarantee (why: no_guarantee in guarantee.json)"
    assert line in repr(result)
  assert "says nothing about the records below it" in repr(result)


def test_a_caveat_of_some_levels_names_them():
  guarantees = _guarantees()
  guarantees["class"] = dataclasses.replace(guarantees["class"], caveat="But.")
  assert reporting.guarantee_lines(guarantees, 3)[-1] == "  class: But."


def test_a_caveat_stands_above_the_picture(tmp_path):
  heads = []
  for name, caveat in (("a", ""), ("b", "not a guarantee " * 8)):
    path = tmp_path / f"{name}.png"
    reporting.epsilon_curve(
        path, [1, 2], {"x": [1.0, 2.0]}, delta=1e-5, caveat=caveat
    )
    pixels = image_lib.imread(path)[..., :3]
    heads.append((pixels[:90].min(-1) < 0.4).sum())
    assert pixels[:, -4:].min() > 0.9, "text is cut off at the right"
  assert heads[1] > 1.5 * heads[0]


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_every_curve_is_drawn_or_its_absence_is_said(tmp_path, levels):
  curves = {str(k): [0.1 + k / 3, 1.0] for k in range(levels)}
  reporting.epsilon_curve(tmp_path / "a.png", [1, 5], curves, delta=1e-5)
  pixels = image_lib.imread(tmp_path / "a.png")[..., :3]
  coloured = pixels.max(-1) - pixels.min(-1) > 0.3
  assert coloured.sum() >= 300 * levels
  middle = pixels[pixels.shape[0] // 3 : -pixels.shape[0] // 3, 100:-40]
  assert (middle.min(-1) < 0.3).sum() > 100 or levels


@pytest.mark.parametrize(
    "after, epsilon, units, words",
    [
        (0.9, 2.0, 200, []),
        (0.55, 2.0, 200, []),  # Intervals of 0.03 each add up to 0.042.
        (0.54, 2.0, 200, ["no gain"]),
        (0.4, 20.0, 200, ["no gain", "hardly protects one user"]),
        (0.9, 20.0, 36, ["of level 'user': 36", "hardly protects one"]),
    ],
)
def test_a_run_says_where_it_reached_or_protected_little(
    after, epsilon, units, words
):
  guarantees = _guarantees()
  guarantees["user"] = dataclasses.replace(guarantees["user"], epsilon=epsilon)
  before, now = (
      evaluation.Accuracy(mean=m, low=m - 0.03, high=m + 0.03, tasks=100)
      for m in (0.5, after)
  )
  result = training.Result(
      steps=3, planned=3, stopped="done", guarantees=guarantees, seconds=1,
      score=now, untrained=before, privacy_unit="user", units=units,
  )
  assert len(result.warnings) == len(words)
  assert "plan proposes" not in repr(result)
  for word, line in zip(words, result.warnings):
    assert word in line and line in repr(result)
  assert "; untrained 50.0 %" in repr(result)


def test_one_word_for_the_start_and_the_share_of_tasks_that_lack_examples():
  before = evaluation.Accuracy(mean=0.5, low=0.4, high=0.6, tasks=100)
  result = training.Result(
      steps=3, planned=3, stopped="done", guarantees=_guarantees(), seconds=1,
      score=before, untrained=before, started=True, filled=1 / 40,
      proposed=True,
  )
  assert "; public start 50.0 %" in repr(result)
  gain, lack = result.warnings
  assert "plan proposes may help" in gain
  assert "(public start)" in gain and "untrained" not in repr(result)
  assert "97.5 % of the sampled tasks lack classes or examples" in lack
