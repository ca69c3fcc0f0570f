"""A config is read once: a missing, unknown or wrong field is named."""

import dataclasses
import json
import math

import ml_collections
import pytest

from episodic_dp import options
from episodic_dp import plan
from episodic_dp.config import build
from episodic_dp.config import defaults
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import glyphs
from episodic_dp.config.presets import glyphs_supervised
from episodic_dp.config.presets import omniglot

KNOWN = {
    "private": True, "width": 8, "rate": 0.5, "name": "a", "copies": 0,
    "noise": 1.0,
}


def test_arguments_have_the_types_of_their_defaults():
  text = "private=0,width=1,rate=1e-3,name=b,copies=0,noise=0"
  assert defaults.arguments(text, **KNOWN).to_dict() == {
      "private": False, "width": 1, "rate": 0.001, "name": "b", "copies": 0,
      "noise": 0.0,
  }
  assert defaults.arguments(None, **KNOWN).to_dict() == KNOWN


@pytest.mark.parametrize(
    "text",
    [
        "widht=3", "width", "width=wide", "width=1.5", "width=0", "copies=-1",
        "rate=0", "rate=1.5", "rate=nan", "noise=much", "private=2",
    ],
)
def test_a_wrong_argument_is_named(text):
  with pytest.raises(ValueError, match=text.split("=")[0]):
    defaults.arguments(text, **KNOWN)


def test_sections_hold_the_values_of_the_config():
  config = RunConfig.parse(glyphs.get_config("width=3,inner_steps=2,steps=7"))
  assert (config.steps, config.delta, config.seed) == (7, 1e-5, 0)
  assert config.model == options.Network(width=3)
  assert config.learner == options.Learner(inner_steps=2)
  assert config.data.name == "glyphs" and config.data.options["size"] == 28
  assert config.release.hierarchy.sizes == (8000, 8, 5)
  assert (config.level, config.way, config.steps) == (
      "participant", 5, 7
  )
  with pytest.raises(dataclasses.FrozenInstanceError):
    config.steps = 8


def test_every_field_has_its_default_and_can_be_set_by_a_flag(make_config):
  c = defaults.base(**make_config().to_dict())
  assert RunConfig.parse(c).as_json() == RunConfig.parse(
      make_config()
  ).as_json()
  c.compute.devices, c.optimizer.momentum, c.model.start = 2, 0.5, "x.npz"
  c.mechanism.clipping, c.mechanism.count_noise = "private_quantile", 4.0
  c.mechanism.clip_quantile, c.mechanism.clip_rate = 0.5, 0.2
  assert RunConfig.parse(c).mechanism.gradient_noise_multiplier > 1
  off = defaults.mechanism(False, clip_unit="task", noise_multiplier=1.0)
  assert not plan.Mechanism(**off).guaranteed


def test_a_plan_that_is_only_accounted_needs_no_data(make_run):
  config = make_run()
  with pytest.raises(plan.PlanError, match="config.data.name=''.*cifar_fs"):
    build.build(config)


@pytest.mark.parametrize(
    "preset, network, learner, outputs",
    [
        (glyphs, {}, "maml", 5),
        (glyphs, {}, "protonet", None),
        (glyphs, dict(name="mlp", widths=(7,)), "protonet", 7),
        (glyphs, dict(name="mlp", outputs=9), "protonet", 9),
        (glyphs, dict(name="own:make", outputs=9), "maml", 9),
        (glyphs_supervised, dict(outputs=7), "supervised", 7),
    ],
)
def test_outputs_follow_from_network_and_learner(
    preset, network, learner, outputs
):
  c = preset.get_config()
  c.model.update(network)
  c.learner.name = learner
  assert RunConfig.parse(c).outputs == outputs


@pytest.mark.parametrize("module", [glyphs, glyphs_supervised, omniglot])
@pytest.mark.parametrize("text", ["", "private=0"])
def test_json_is_read_back(module, text):
  config = RunConfig.parse(module.get_config(text))
  found = json.loads(json.dumps(config.as_json(), allow_nan=False))
  assert RunConfig.parse(found) == config
  assert RunConfig.parse(ml_collections.ConfigDict(found)) == config


def test_ragged_trees_and_copies_are_read(make_run):
  ragged = make_run(hierarchy=dict(
      levels=("task", "class", "image"), sizes=None,
      child_counts=((2,), (5, 6), ((3, 8), 4, (5, 2))),
  )).release.hierarchy
  assert ragged.child_counts(2).tolist() == [3] * 8 + [4, 5, 5]
  copied = make_run(
      hierarchy=dict(
          levels=("task", "class", "image"), sizes=(9, 8, 5), copies=True,
          most_copies=(1, 0, 4),
      )
  ).release.hierarchy
  assert copied.most_copies == (1, 0, 4)


def test_changes_are_checked_again():
  config = RunConfig.parse(glyphs.get_config())
  other = config.with_changes(
      {"steps": 3, "mechanism.noise_multiplier": 2.0, "compute.devices": 1}
  )
  assert (other.steps, other.compute.devices) == (3, 1)
  assert other.release.mechanism.noise_multiplier == 2.0
  assert config.steps == 60
  assert config.with_changes({"privacy_unit": "glyph"}).level == "glyph"


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"steps": None}, "config.steps"),
        ({"steps": -3}, "config.steps=-3.*at least 1"),
        ({"stpes": 3}, "config.stpes=3: expected one of the fields steps"),
        ({"delta": 2.0}, "config.delta=2.0"),
        ({"delta": math.nan}, "config.delta"),
        ({"privacy_unit": "patient"}, "unknown level 'patient'"),
        ({"hierarchy": None}, "config.hierarchy is missing"),
        ({"hierarchy.sizes": None}, "either sizes"),
        ({"hierarchy.sizes": [100, 4, 5]}, "has 4 of level 'glyph'"),
        ({"hierarchy.most_copies": [1, 2, 2]}, "copies=True"),
        ({"plan": None}, "config.plan"),
        ({"plan.stages": 7}, "config.plan.stages=7"),
        ({"episode": {"way": 5, "shot": 1}}, "config.episode.query is missing"),
        ({"mechanism.sigma": 2}, "config.mechanism.sigma=2"),
        ({"mechanism.noise_multiplier": -1.0}, "noise_multiplier"),
        ({"model": 3}, "config.model=3"),
        ({"model.name": "conv5"}, "model.name='conv5'.*MODULE:FUNCTION"),
        ({"model.depth": 3}, "config.model.depth=3"),
        ({"model.width": 0}, "config.model.width=0: .*at least 1"),
        ({"model.norm": "grup"}, "config.model.norm='grup'.*'group'"),
        ({"model.widths": [4, "x"]}, r"config.model.widths\[1\]='x'"),
        ({"model.trained": "head"}, "public weights"),
        ({"learner.name": "mamal"}, "learner.name='mamal'.*'maml'"),
        ({"learner.inner_steps": True}, "config.learner.inner_steps=True"),
        ({"learner.inner_rate": "x"}, "config.learner.inner_rate='x'"),
        ({"optimizer.warm_up": 60}, "warm_up=60: expected less than 60"),
        ({"learner.name": "supervised"}, "single examples"),
        ({"episode": None, "evaluation.way": 5}, "learns from tasks"),
        ({"evaluation.way": 4}, "config.evaluation.way=4"),
        ({"optimizer.name": "adamm"}, "config.optimizer.name='adamm'"),
        ({"optimizer.rate": -0.1}, "config.optimizer.rate=-0.1"),
        ({"optimizer.final_rate": -1.0}, "optimizer.final_rate=-1.0"),
        ({"optimizer.average": 1.0}, "optimizer.average=1.0"),
        ({"augmentation.multiplicity": 0}, "augmentation.multiplicity=0"),
        ({"compute.resident": "x"}, "config.compute.resident='x'"),
        ({"data.options": 3}, "config.data.options=3"),
    ],
)
def test_a_wrong_field_is_named(changes, sentence):
  config = RunConfig.parse(glyphs.get_config())
  config.check_complete()
  with pytest.raises(plan.PlanError, match=sentence) as e:
    changed = config.with_changes(changes)
    changed.check_complete()
  assert "\n" not in str(e.value)
