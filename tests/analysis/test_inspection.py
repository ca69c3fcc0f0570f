"""The figure of a plan: sampled shares and the contact sheet's images."""

import pytest

from episodic_dp.analysis import inspection
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import glyphs
from episodic_dp.config.presets import sinusoid


@pytest.fixture(scope="module")
def config():
  c = glyphs.get_config("participants=40,rate=0.1,size=16,steps=20")
  c.data.options.validation_participants = 8
  c.data.options.test_participants = 1
  return RunConfig.parse(c)


def test_the_figure_holds_public_tasks_of_the_plan(config):
  tasks = inspection.public_tasks(config, None, False)
  assert tasks.rows.shape == (inspection.TASKS, 5, 3)
  shown = inspection.sheet(tasks, 0)
  first = tasks.images[tasks.rows[0, 2, 0]][..., 0]
  assert (shown[2 * 18 + 1:3 * 18 - 1, 1:17, 0] == first).all()
  drawn = inspection.draw(
      config.release, {"drawing": {"epsilon": 0.5}}, tasks
  )
  tree, *panels = drawn.axes
  texts = [text.get_text() for text in tree.texts]
  assert texts[0].startswith("40 participant units by Poisson(0.1), no guar")
  assert texts[2].endswith("ε = 0.5") and len(panels) == inspection.TASKS
  # One of 13, 5 of 8 and 3 of 5 squares are filled.
  colors = [patch.get_facecolor()[:3] for patch in tree.patches]
  assert len(colors) - colors.count((1, 1, 1)) == 9 and len(colors) == 26


def test_points_have_no_contact_sheet():
  points = sinusoid.get_config("participants=300,rate=0.1,steps=5")
  assert inspection.public_tasks(RunConfig.parse(points), None, False) is None


@pytest.mark.parametrize("share, filled", [(0.02, 1), (0.625, 8), (1.0, 13)])
def test_about_the_sampled_share_of_squares_is_filled(share, filled):
  squares = inspection.filled_squares(share, 13)
  assert len(set(squares)) == filled and set(squares) <= set(range(13))
