"""The pictures of the concepts show what the library says."""

import pathlib
import re

import pytest

from episodic_dp import accounting
from website import concepts

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "concepts.md"


def test_the_page_shows_every_picture_and_the_folder_holds_no_other():
  shown = re.findall(r"\]\(pictures/(\w+)\.png\)", PAGE.read_text())
  there = [path.stem for path in concepts.FOLDER.glob("*.png")]
  assert sorted(shown) == sorted(there) == sorted(concepts.PICTURES)


def test_units_have_the_epsilon_of_the_accountant():
  figure = concepts.units()
  release = concepts.study_release()
  for axes, level in zip(figure.axes, release.hierarchy.levels):
    found = accounting.guarantee(release, steps=60, delta=1e-5, level=level)
    assert axes.get_title() == f"one {level}: ε = {found.epsilon:.3g}"


def test_a_step_draws_what_the_plan_says():
  figure = concepts.multistage()
  assert len(figure.axes) == 3
  for axes in figure.axes:
    tasks = int(re.search(r": (\d+) task", axes.get_title())[1])
    colored = [p for p in axes.patches if p.get_edgecolor()[:3] == (1, 1, 1)]
    framed = [p for p in axes.patches if not p.get_fill()]
    assert len(framed) == tasks and len(colored) == 4 * tasks


@pytest.mark.parametrize("epsilon, delta", [(0.0, 0.0), (1.0, 0.01)])
def test_detections_are_those_of_the_definition(epsilon, delta):
  alarms = concepts.np.linspace(0, 1, 11)
  found = concepts.detections(alarms, epsilon, delta)
  e = concepts.np.exp(epsilon)
  # Both directions of (epsilon, delta), and nothing better than either.
  first = found - e * alarms - delta
  second = (1 - alarms) - e * (1 - found) - delta
  assert (first < 1e-12).all() and (second < 1e-12).all()
  assert (concepts.np.maximum(first, second) > -1e-12)[1:-3].all()
  if epsilon == 0:
    assert found == pytest.approx(alarms)
