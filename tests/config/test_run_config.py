"""A config is read once: what is missing, unknown or wrong is named."""

import dataclasses
import json
import math

import pytest

from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.config import RunConfig
from episodic_dp.config import sections
from episodic_dp.config.presets import glyphs
from episodic_dp.config.presets import glyphs_supervised
from episodic_dp.config.presets import omniglot
from episodic_dp.config.presets import sinusoid

SECTIONS = (
    sections.Model, sections.Learner, sections.Optimizer, sections.Evaluation,
    sections.Compute,
)


def test_sections_hold_what_the_config_says():
  config = RunConfig.parse(glyphs.get_config("width=3,inner_steps=2,steps=7"))
  assert (config.steps, config.delta, config.seed) == (7, 1e-5, 0)
  assert config.model == sections.Model(width=3)
  assert config.learner.inner_steps == 2 and config.learner.name == "maml"
  assert config.data.name == "glyphs" and config.data.options["size"] == 28
  assert config.release.hierarchy.sizes == (8000, 8, 5)
  assert (config.level, config.way, config.planned_steps) == (
      "participant", 5, 7
  )
  assert config.private_seed is None and config.survey is None
  with pytest.raises(dataclasses.FrozenInstanceError):
    config.steps = 8  # type: ignore[misc]


@pytest.mark.parametrize(
    "name, value",
    [("model", "conv5"), ("learner", "mamal"), ("optimizer", "adamm")],
)
def test_a_name_that_nothing_has_is_refused_where_nothing_is_built(name, value):
  config = glyphs.get_config()
  config[name].name = value
  with pytest.raises(plan.PlanError, match=f"{name}.name='{value}' must be"):
    RunConfig.parse(config)


def test_the_privacy_unit_is_a_level():
  config = glyphs.get_config()
  config.privacy_unit = "drawing"
  assert RunConfig.parse(config).level == "drawing"
  config.privacy_unit = "patient"
  with pytest.raises(plan.PlanError, match="unknown level 'patient'"):
    RunConfig.parse(config)


@pytest.mark.parametrize("section", SECTIONS)
def test_defaults_of_the_sections_are_those_of_the_presets(section):
  values = defaults.base()[section.NAME].to_dict()
  assert sections.parse(section, {section.NAME: values}) == section()


def test_a_perceptron_has_widths_and_a_supervised_learner_needs_little():
  config = RunConfig.parse(sinusoid.get_config())
  assert config.model.widths == (40, 40) and config.model.outputs == 1
  config = RunConfig.parse(glyphs_supervised.get_config())
  assert config.learner == sections.Learner(name="supervised")
  assert config.fine_tuning == sections.FineTuning()


def test_a_config_that_is_only_accounted_needs_no_more(make_run):
  config = make_run(target_epsilon=2.0)
  assert 1 <= config.planned_steps < 60
  with pytest.raises(plan.PlanError, match="config.data is missing: a run"):
    config.check_complete()


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"learner.inner_steps": None}, "learner.inner_steps"),
        ({"learner": {"name": "anil"}}, "learner.inner_steps"),
        ({"model": {"name": "resnet12"}}, "model.width"),
        ({"model.width": None}, "model.width"),
        ({"evaluation.query": None}, "evaluation.query"),
        ({"optimizer": {}}, "optimizer.name"),
        ({"seed": None}, "seed"),
    ],
)
def test_what_a_run_needs_is_asked_for(changes, field):
  config = RunConfig.parse(glyphs.get_config())
  config.check_complete()
  with pytest.raises(plan.PlanError, match=f"config.{field} is missing"):
    config.with_changes(changes).check_complete()


@pytest.mark.parametrize("module", [glyphs, glyphs_supervised, omniglot])
def test_its_json_is_that_of_the_config(module):
  config = module.get_config()
  found = RunConfig.parse(config).as_json()
  assert found == json.loads(json.dumps(found, allow_nan=False))
  assert found == json.loads(json.dumps(config.to_dict()))
  again = RunConfig.parse(found)
  assert again.as_json() == found
  assert again.release.plan == RunConfig.parse(config).release.plan


def test_changes_are_parsed_anew():
  config = RunConfig.parse(glyphs.get_config())
  other = config.with_changes(
      {"steps": 3, "mechanism.noise_multiplier": 2.0, "compute.devices": 1}
  )
  assert (other.steps, other.compute.devices) == (3, 1)
  assert other.release.mechanism.noise_multiplier == 2.0
  assert other.as_json()["mechanism"]["noise_multiplier"] == 2.0
  assert config.steps == 60 and config.as_json()["steps"] == 60
  with pytest.raises(plan.PlanError, match="noise_multiplier -1"):
    config.with_changes({"mechanism.noise_multiplier": -1.0})


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"steps": None}, "config.steps is missing: set it"),
        ({"delta": None}, "config.delta is missing: set it"),
        ({"stpes": 3}, "config.stpes is not read by anything: use steps,"),
        ({"model.depth": 3}, "config.model.depth is not read by anything: use"),
        ({"compute.chunk": 3}, "config.compute.chunk is not read by anything"),
        ({"steps": -3}, "whole number of at least 1, such as --config.steps=1"),
        ({"checkpoint_every": 0}, "config.checkpoint_every is 0: give a whole"),
        ({"delta": 2.0}, "config.delta is 2.0: give a number between 0 and 1"),
        ({"delta": math.nan}, "such as --config.delta=1e-05"),
        ({"model.width": 0}, "at least 1, such as --config.model.width=1"),
        ({"compute.devices": 0}, "at least 1, such as --config.compute.dev"),
        ({"learner.inner_steps": "x"}, "inner_steps is 'x': give a whole"),
        ({"learner.inner_steps": True}, "inner_steps is True: give a whole"),
        ({"learner.inner_rate": "x"}, "inner_rate is 'x': give a number"),
        ({"target_epsilon": -1.0}, "such as --config.target_epsilon=3"),
        ({"target_epsilon": math.nan}, "target_epsilon is nan: give a pos"),
        ({"model.norm": "grup"}, "norm='grup' must be one of .'batch', 'group"),
        ({"learner.order": 2}, "config.learner.order is 2: give a name"),
        ({"model": 3}, "config.model is 3: give fields by name"),
        ({"data.options": 3}, "config.data.options is 3: give fields by name"),
        ({"compute.resident": "x"}, "resident is 'x': give True or False"),
        ({"seed": 0.5}, "config.seed is 0.5: give a whole number"),
        (
            {"model": {"name": "mlp", "widths": [4, "x"]}},
            r"config.model.widths is \(4, 'x'\): give a tuple of whole",
        ),
    ],
)
def test_mistakes_are_named(changes, sentence):
  with pytest.raises(plan.PlanError, match=sentence):
    RunConfig.parse(glyphs.get_config()).with_changes(changes)
