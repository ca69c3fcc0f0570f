"""Curves around a config pass through its own point, by the accountant."""

import json

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import plan
from episodic_dp.analysis import costs
from episodic_dp.analysis import sweeps

DISJOINT = dict(
    hierarchy=dict(sizes=(500, 20), levels=("class", "image")),
    plan=dict(stages=("FixedSize(20)", "FixedSize(4)")),
    episode=dict(way=5, shot=2, query=2, form="disjoint"),
    mechanism=dict(clip_unit="episode", noise_multiplier=2.0),
)
ALL = dict(
    plan=dict(stages=("All()", "FixedSize(5)", "FixedSize(3)")),
    mechanism=dict(clip_unit="task", noise_multiplier=50.0),
)
SILENT = dict(mechanism=dict(clip_unit="task", noise_multiplier=0.0))


@pytest.fixture(scope="module")
def swept(make_run):
  c = make_run()
  result = costs.account(c)
  return c, result, {
      name: sweeps.sweep(name, c, result) for name in sweeps.SWEEPS
  }


def lines(data):
  return {line["label"]: line for line in data["lines"]}


@pytest.mark.parametrize("name", sweeps.SWEEPS)
def test_every_level_passes_through_its_own_point(swept, name):
  _, result, found = swept
  assert list(lines(found[name])) == ["task", "class", "image"]
  for level, line in lines(found[name]).items():
    x, y = line["own"]
    own = result["guarantees"][level]["epsilon"]
    assert y == pytest.approx(own, rel=2e-3)
    assert line["y"][line["x"].index(x)] == y
    assert line["x"] == sorted(set(line["x"])) and len(line["x"]) > 3


@pytest.mark.parametrize(
    "name, sign", [("steps", 1), ("noise_multiplier", -1), ("tasks", 1)]
)
def test_epsilon_rises_or_falls_as_it_should(swept, name, sign):
  for line in lines(swept[2][name]).values():
    values = np.asarray([y for y in line["y"] if isinstance(y, float)])
    assert (sign * np.diff(values) > -2e-3 * values[1:]).all()
    assert values.max() > 2 * values.min()


def test_points_are_those_of_the_accountant(swept):
  c, _, found = swept
  noise = lines(found["noise_multiplier"])["class"]
  stages = lines(found["stages"])["image"]
  noisier = c.release.replace(mechanism=plan.Mechanism(
      clip_unit="task", noise_multiplier=noise["x"][2]
  ))
  one = c.release.replace(plan=plan.SamplingPlan(
      (c.release.plan.stages[0], plan.All(), plan.All())
  ))
  assert noise["y"][2] == accounting.guarantee(
      noisier, steps=60, delta=1e-5, level="class"
  ).epsilon
  assert stages["y"][1] == accounting.guarantee(
      one, steps=60, delta=1e-5, level="image"
  ).epsilon
  # Nothing sampled: one Gaussian of noise 1 / 2 per step.
  assert stages["y"][0] == pytest.approx(
      accounting.epsilon(1, 1, 2.0, 60, 1e-5), rel=1e-6
  )
  assert lines(found["tasks"])["task"]["own"][0] == 200.0


def test_disjoint_tasks_grow_by_whole_tasks(make_run):
  c = make_run(**DISJOINT)
  data = sweeps.sweep("tasks", c, costs.account(c))
  for line in lines(data).values():
    assert all(x == int(x) for x in line["x"]) and max(line["x"]) > 4
    assert line["own"][0] == 4 and None not in line["y"]


@pytest.mark.parametrize(
    "name, fields",
    [("magic", {}), ("stages", DISJOINT), ("tasks", ALL), ("steps", SILENT)],
)
def test_nothing_to_sweep_is_refused(make_run, name, fields):
  c = make_run(**fields)
  with pytest.raises(errors.PlanError, match=f"sweep '{name}'"):
    sweeps.sweep(name, c, costs.account(c))


def test_files_hold_what_was_drawn(swept, tmp_path):
  for name, data in swept[2].items():
    path = sweeps.write(data, tmp_path / "out")
    assert path.name == f"sweep_{name}.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert json.loads(path.with_suffix(".json").read_text()) == data
