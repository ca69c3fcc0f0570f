"""The noise, steps and tasks for a wanted epsilon: what is said is true."""

import json
import re
import shlex

import pytest

from episodic_dp import plan
from episodic_dp.analysis import costs
from episodic_dp.config import solving

GLYPHS = "--config=glyphs"


@pytest.mark.parametrize("solve", solving.SOLVERS)
@pytest.mark.parametrize("level", ["participant", "drawing"])
@pytest.mark.few(3)
def test_the_flags_that_are_printed_spend_what_is_said(call, solve, level):
  done = call(
      "calibrate", GLYPHS, "--epsilon=2", f"--level={level}",
      f"--solve={solve}",
  )
  assert done.returncode == 0, done.stderr
  spent = re.search(
      rf"epsilon (\S+) of 2 for a {level} \(delta 1e-05\)", done.stdout
  )
  assert 1.97 < float(spent[1]) <= 2.0
  changes = shlex.split(done.stdout.split(": ")[1])
  again = call("account", GLYPHS, *changes, "--format=json")
  found = json.loads(again.stdout)["guarantees"][level]["epsilon"]
  assert float(spent[1]) - 0.002 < found <= float(spent[1])


def test_the_config_says_what_is_not_asked(make_run):
  config = make_run(privacy_unit="image", delta=1e-6)
  found = solving.calibrate(config, epsilon=2.0)
  assert found.level == "image" and found.delta == 1e-6
  assert 1.98 <= found.epsilon <= 2.0


def test_a_config_spends_what_it_is_asked_for(make_run):
  config, found = solving.spend(make_run(privacy_unit="image"), 2.0)
  spent = costs.account(config)["guarantees"]["image"]["epsilon"]
  assert spent == found.epsilon and 1.98 <= spent <= 2.0


@pytest.mark.parametrize("epsilon, refused", [(1e-3, True), (0.02, False)])
def test_of_much_noise_it_is_said_which_epsilon_can_be_reached(
    make_run, epsilon, refused
):
  heard: list[str] = []
  config = make_run(privacy_unit="image")
  if refused:
    with pytest.raises(plan.PlanError, match="a tenth of the .* tasks") as e:
      solving.spend(config, epsilon)
    said = str(e.value)
  else:
    _, found = solving.spend(config, epsilon, warn=heard.append)
    assert found.per_step / 10 < found.noise_multiplier <= found.per_step
    said = heard.pop()
  reached = float(re.search(r"useful epsilon is ([\d.]+): give it", said)[1])
  _, found = solving.spend(config, reached, warn=heard.append)
  assert found.epsilon <= reached and not heard
  assert found.noise_multiplier <= found.per_step / 10


def test_examples_take_the_place_of_tasks_that_are_not_formed(call):
  done = call(
      "calibrate", "--config=glyphs_supervised", "--epsilon=3", "--solve=tasks"
  )
  assert re.match(
      r"noise_multiplier 1 spends epsilon 2\.9\d+ of 3 for a drawing .* at"
      r" steps=100 of \S+ examples:"
      r""" --config.plan.stages="\('Poisson\(\S+\)',\)"$""",
      done.stdout,
  ), done.stdout


def test_noise_for_replaced_units_is_more(call, caplog):
  asked = ("calibrate", GLYPHS, "--epsilon=2", "--delta=0.01", "--format=json")
  found, replaced = (
      json.loads(call(*asked, f"--neighbours={neighbours}").stdout)
      for neighbours in ("add-or-remove", "replace-one")
  )
  assert found["noise_multiplier"] < replaced["noise_multiplier"]
  assert "at least 1 / 12000" in found["caveat"]
  assert "at least 1 / 12000" in caplog.text


def test_json_holds_the_numbers(call):
  done = call(
      "calibrate", GLYPHS, "--epsilon=3", "--solve=steps", "--format=json"
  )
  found = json.loads(done.stdout)
  assert found["flag"] == f"--config.steps={found['steps']}"
  assert 2.99 < found["epsilon"] <= 3.0 == found["target_epsilon"]
