"""The figure of a plan: what is sampled, and images of public tasks."""

import pytest

from episodic_dp.analysis import inspection
from episodic_dp.config.presets import glyphs
from episodic_dp.config.presets import sinusoid


@pytest.fixture(scope="module")
def config():
  return glyphs.glyphs(participants=40, rate=0.1, size=16, steps=20).replace({
      "data.options.validation_participants": 8,
      "data.options.test_participants": 1,
  })


def test_the_figure_holds_public_tasks_of_the_plan(config):
  tasks = inspection.public_tasks(config, None, False)
  assert tasks.rows.shape == (inspection.TASKS, 5, 3)
  shown = inspection.sheet(tasks, 0)
  first = tasks.images[tasks.rows[0, 2, 0]][..., 0]
  assert (shown[2 * 18 + 1:3 * 18 - 1, 1:17, 0] == first).all()
  drawn = inspection.draw(
      config.release, {"drawing": {"epsilon": 0.5}}, tasks
  )
  first, _, last = drawn.get_suptitle().splitlines()
  assert first == "participant (40): Poisson(0.1), no guarantee"
  assert last.endswith("ε = 0.5") and len(drawn.axes) == inspection.TASKS


def test_tasks_are_no_larger_than_public_units_hold(config):
  config = config.replace({"learner.name": "protonet", "evaluation.way": 3})
  tasks = inspection.public_tasks(config, None, False)
  assert tasks.rows.shape == (inspection.TASKS, 3, 3)


def test_points_have_no_contact_sheet():
  points = sinusoid.sinusoid(participants=300, rate=0.1, steps=5)
  assert inspection.public_tasks(points, None, False) is None
