"""The rates of the table against a loop, and the contact sheet's images."""

import pytest

from episodic_dp import plan
from episodic_dp.analysis import inspection
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import glyphs
from episodic_dp.config.presets import sinusoid

NESTED = [[4, 2, 3], [4, 5], [7, 2, 2, 9]]
NAMES = ("alphabet", "character", "drawing")


class Described:
  """A config of a ragged hierarchy, as far as levels are read from it."""

  release = plan.Release(
      plan.Hierarchy.from_sizes(NESTED, levels=NAMES),
      plan.SamplingPlan(
          (plan.Poisson(0.3), plan.FixedSize(3), plan.FixedSize(2)),
          allow_short_units=True,
      ),
      plan.Mechanism(
          clip_unit="alphabet", clip_norm=1.0, noise_multiplier=1.0
      ),
  )
  planned_steps, delta = 3, 1e-5


def test_rates_of_ragged_levels_against_a_loop():
  found = inspection.levels(Described)
  eta = [
      0.3 * min(1, 3 / len(alphabet)) * min(1, 2 / size)
      for alphabet in NESTED for size in alphabet
  ]
  assert found[2].inclusion == pytest.approx((min(eta), max(eta)))
  assert [one.units for one in found] == [3, 9, 38]
  assert [one.family for one in found] == [(3, 3), (2, 4), (2, 9)]
  for one in found:
    assert one.inclusion[1] == pytest.approx(plan.inclusion_rate(
        Described.release.hierarchy, Described.release.plan, one.name
    ))
    assert one.epsilon > 0 and not one.reason


@pytest.fixture(scope="module")
def config():
  c = glyphs.get_config("participants=40,rate=0.1,size=16,steps=20")
  c.data.options.validation_participants = 8
  c.data.options.test_participants = 1
  return RunConfig.parse(c)


def test_the_figure_holds_public_tasks_of_the_plan(config, tmp_path):
  tasks = inspection.public_tasks(config, None, False)
  assert tasks.rows.shape == (inspection.TASKS, 5, 3)
  shown = inspection.sheet(tasks, 0)
  first = tasks.images[tasks.rows[0, 2, 0]][..., 0]
  assert (shown[2 * 18 + 1:3 * 18 - 1, 1:17, 0] == first).all()
  found = inspection.levels(config)
  path = inspection.write(found, config, tasks, tmp_path)
  assert path.read_bytes().startswith(b"\x89PNG")
  table = inspection.table(found, config).splitlines()
  assert table[2].split()[:3] == ["participant", "40", "Poisson(0.1)"]


def test_points_have_no_contact_sheet():
  points = sinusoid.get_config("participants=300,rate=0.1,steps=5")
  assert inspection.public_tasks(RunConfig.parse(points), None, False) is None


@pytest.mark.parametrize("own, filled", [(0.02, 1), (0.625, 8), (1.0, 13)])
def test_about_the_drawn_share_of_squares_is_filled(own, filled):
  one = inspection.Level(
      name="a", units=1, family=(1, 1), stage=plan.All(), parent=(1, 1),
      own=(own, own), inclusion=(own, own), epsilon=None, reason="",
  )
  squares = inspection.drawn_squares(one, 13)
  assert len(set(squares)) == filled and set(squares) <= set(range(13))


