"""Curves around a config pass through its own point, by the accountant."""

import json

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import plan
from episodic_dp.analysis import costs
from episodic_dp.analysis import sweeps

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


@pytest.mark.parametrize(
    "name, sign", [("steps", 1), ("noise_multiplier", -1), ("delta", -1)]
)
def test_every_level_passes_through_its_own_point(swept, name, sign):
  _, result, found = swept
  assert list(lines(found[name])) == ["task", "class", "image"]
  for level, line in lines(found[name]).items():
    x, y = line["own"]
    assert y == result["guarantees"][level]["epsilon"]
    assert line["y"][line["x"].index(x)] == y
    assert line["x"] == sorted(set(line["x"])) and len(line["x"]) > 3
    values = np.asarray([y for y in line["y"] if y != "inf"])
    assert (sign * np.diff(values) > -2e-3 * values[1:]).all()
    assert values.max() > 1.1 * values.min()


def test_points_are_those_of_the_accountant(swept):
  c, _, found = swept
  noise = lines(found["noise_multiplier"])["class"]
  noisier = c.release.replace(mechanism=plan.Mechanism(
      clip_unit="task", noise_multiplier=noise["x"][2]
  ))
  assert noise["y"][2] == accounting.guarantee(
      noisier, steps=60, delta=1e-5, level="class"
  ).epsilon


@pytest.mark.parametrize("name, fields", [("magic", {}), ("steps", SILENT)])
def test_nothing_to_sweep_is_refused(make_run, name, fields):
  c = make_run(**fields)
  with pytest.raises(errors.PlanError, match=f"sweep.*'{name}'"):
    sweeps.sweep(name, c, costs.account(c))


def test_files_hold_what_was_drawn(swept, tmp_path):
  for name, data in swept[2].items():
    path = sweeps.write(data, tmp_path / "out")
    assert path.name == f"sweep_{name}.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert json.loads(path.with_suffix(".json").read_text()) == data
