"""A config is read once: a missing, unknown or wrong field is named."""

import dataclasses
import math

import pytest

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.config import presets
from episodic_dp.config.presets import glyphs
from episodic_dp.run import Run
from tests import plans
from tests.refusals import assert_refused
from tests.stored import through_json


def known(
    *,
    private: bool = True,
    width: plain.Count = 8,
    rate: plain.Rate = 0.5,
    name: str = "a",
    levels: tuple[str, ...] = ("class", "image"),
    copies: plain.Whole = 0,
    noise: plain.NotNegative = 1.0,
):
  """Has an argument of each type."""


def test_arguments_have_the_types_of_a_signature():
  text = "private=0,width=1,rate=1e-3,name=1,levels=a/b/c,copies=0,noise=0"
  assert presets.arguments(known, text) == {
      "private": False, "width": 1, "rate": 0.001, "name": "1",
      "levels": ("a", "b", "c"), "copies": 0, "noise": 0.0,
  }
  assert presets.arguments(known, "") == {}


@pytest.mark.parametrize(
    "text",
    [
        "widht=3", "width", "width=wide", "width=1.5", "width=0", "copies=-1",
        "rate=0", "rate=1.5", "rate=nan", "noise=much", "private=2",
    ],
)
def test_a_wrong_argument_is_named(text):
  with pytest.raises(plan.PlanError, match=text.split("=")[0]):
    presets.arguments(known, text)


_FILE = """
from episodic_dp.config.presets import glyphs

class Fields(dict):
  def to_dict(self):
    return dict(self)

def get_config({takes}):
  run = glyphs.glyphs(width=3)
  return {result}
"""


@pytest.mark.parametrize(
    "takes, result, arguments",
    [
        ("", "run", ""),
        ("", "run.as_json()", ""),
        ("", "Fields(run.as_json())", ""),
        ("text", "run.replace({'model.width': int(text)})", ":5"),
        (
            "*, width: int = 4", "run.replace({'model.width': width})",
            ":width=5",
        ),
    ],
)
def test_a_file_returns_a_run_or_a_mapping(tmp_path, takes, result, arguments):
  path = tmp_path / "mine.py"
  path.write_text(_FILE.format(takes=takes, result=result))
  found = presets.load(f"{path}{arguments}", {"steps": "7"})
  assert (found.steps, found.model.width) == (7, 5 if arguments else 3)


def test_flags_set_fields_by_their_types():
  found = presets.load("glyphs", {
      "episode.query": "1", "plan.stages": "('Poisson(1/4)', 'All()', 'All()')",
      "compute.resident": "false", "model.start": "x.npz",
      "hierarchy.most_copies": "(1, 2, 2)", "hierarchy.copies": "True",
      "data.options.size": "16",
  })
  assert found.plan.episode == plan.Episode(way=5, shot=1, query=1)
  assert found.plan.stages == (plan.Poisson(0.25), plan.All(), plan.All())
  assert not found.compute.resident and found.model.start == "x.npz"
  assert found.hierarchy.most_copies == (1, 2, 2)
  assert found.data.options["size"] == 16


def test_sections_hold_the_values_of_the_config():
  config = glyphs.glyphs(width=3, inner_steps=2, steps=7)
  assert (config.steps, config.delta, config.seed) == (7, 1e-5, 0)
  assert config.model == options.Network(width=3)
  assert config.learner == options.LearnerOptions(inner_steps=2)
  assert config.data.name == "glyphs" and config.data.options["size"] == 28
  assert config.release.hierarchy.sizes == (12000, 8, 5)
  assert (config.level, config.way, config.steps) == (
      "participant", 5, 7
  )
  with pytest.raises(dataclasses.FrozenInstanceError):
    config.steps = 8


def test_every_field_has_its_default_and_can_be_set_by_a_flag(make_config):
  found = Run.parse(make_config()).replace({
      "compute.devices": 2, "optimizer.momentum": 0.5, "model.start": "x.npz",
      "mechanism.clipping": "private_quantile", "mechanism.count_noise": 4.0,
      "mechanism.clip_quantile": 0.5, "mechanism.clip_rate": 0.2,
  })
  assert found.mechanism.gradient_noise_multiplier > 1
  assert (found.compute.devices, found.optimizer.rate) == (2, 0.01)
  off = defaults.mechanism(False, clip_unit="task", noise_multiplier=1.0)
  assert not off.guaranteed


def test_a_plan_that_is_only_accounted_needs_no_data(make_run):
  config = make_run()
  assert_refused(plan.PlanError, "config.data.name=''.*cifar_fs", config.build)


@pytest.mark.parametrize(
    "preset, network, learner, outputs",
    [
        ("glyphs", {}, "maml", 5),
        ("glyphs", {}, "protonet", None),
        ("glyphs", {"name": "mlp", "widths": (7,)}, "protonet", 7),
        ("glyphs", {"name": "mlp", "outputs": 9}, "protonet", 9),
        ("glyphs", {"name": "own:make", "outputs": 9}, "maml", 9),
        ("glyphs_supervised", {"outputs": 7}, "supervised", 7),
    ],
)
def test_outputs_follow_from_network_and_learner(
    preset, network, learner, outputs
):
  changes = {f"model.{name}": value for name, value in network.items()}
  found = presets.load(preset).replace(changes | {"learner.name": learner})
  assert found.outputs == outputs


@pytest.mark.parametrize("name", ["glyphs", "glyphs_supervised", "omniglot"])
@pytest.mark.parametrize("text", ["", "private=0"])
def test_json_is_read_back(name, text):
  config = presets.load(f"{name}:{text}")
  found = through_json(config.as_json())
  assert Run.parse(found).as_json() == config.as_json()


def test_the_config_of_an_older_version_is_read_and_of_a_later_one_refused():
  config = glyphs.glyphs()
  old = config.as_json()
  del old["schema"]
  old["episode"] = old["plan"].pop("episode")
  old["model"]["rank"] = 4
  assert Run.parse(old).as_json() == config.as_json()
  old["model"]["trained"] = "low_rank"
  assert_refused(errors.RunError, "version 2.0 .* trained it", Run.parse, old)
  with pytest.raises(errors.RunError, match="schema 4 .* reads schema 3"):
    Run.parse(config.as_json() | {"schema": 4})


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
  config = glyphs.glyphs()
  other = config.replace(
      {"steps": 3, "mechanism.noise_multiplier": 2.0, "compute.devices": 1}
  )
  assert (other.steps, other.compute.devices) == (3, 1)
  assert other.release.mechanism.noise_multiplier == 2.0
  assert config.steps == 60
  assert config.replace({"privacy_unit": "glyph"}).level == "glyph"


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"steps": None}, "config.steps"),
        ({"steps": -3}, "config.steps=-3.*at least 1"),
        ({"delta": 2.0}, "config.delta=2.0"),
        ({"delta": math.nan}, "config.delta"),
        ({"privacy_unit": "patient"}, "unknown level 'patient'"),
        ({"hierarchy": None}, "config.hierarchy is missing"),
        ({"hierarchy.sizes": None}, "either sizes"),
        ({"data.options.drawings": 6}, r'sizes="\(12000, 8, 6\)"'),
        ({"hierarchy.sizes": [100, 4, 5]}, "has 4 of level 'glyph'"),
        ({"hierarchy.most_copies": [1, 2, 2]}, "copies=True"),
        ({"plan": None}, "config.plan"),
        ({"mechanism.noise_multiplier": -1.0}, "noise_multiplier"),
        ({"model.name": "conv5"}, "model.name='conv5'.*MODULE:FUNCTION"),
        ({"model.width": 0}, "config.model.width=0: .*at least 1"),
        ({"model.norm": "grup"}, "config.model.norm='grup'.*'group'"),
        ({"model.trained": "head"}, "public weights"),
        ({"model.cosine": True}, "cosine=True: expected False for conv4"),
        ({"learner.name": "mamal"}, "learner.name='mamal'.*'maml'"),
        ({"optimizer.warm_up": 60}, "warm_up=60: expected less than 60"),
        ({"learner.name": "supervised"}, "single examples"),
        ({"plan.episode": None, "evaluation.way": 5}, "learns from tasks"),
        ({"evaluation.way": 4}, "config.evaluation.way=4"),
        ({"optimizer.rate": -0.1}, "config.optimizer.rate=-0.1"),
        ({"optimizer.final_rate": -1.0}, "optimizer.final_rate=-1.0"),
        ({"optimizer.average": 1.0}, "optimizer.average=1.0"),
        ({"augmentation.multiplicity": 0}, "augmentation.multiplicity=0"),
        ({"compute.resident": "x"}, "config.compute.resident='x'"),
    ],
)
def test_a_wrong_field_is_named(changes, sentence):
  config = glyphs.glyphs()
  config.check_complete()
  assert_refused(
      plan.PlanError, sentence,
      lambda: config.replace(changes).resolved().check_complete(),
  )


def test_a_run_made_of_objects_is_checked_like_one_that_is_read():
  given = dict(
      steps=3,
      plan=plans.sampling(0.1),
      mechanism=plan.Mechanism(clip_unit="a", noise_multiplier=1.0),
  )
  assert Run(**given, optimizer=dict(rate=1)).optimizer.rate == 1.0
  with pytest.raises(plan.PlanError, match="config.model.width=0"):
    Run(**given, model=options.Network(width=0))
  with pytest.raises(plan.PlanError, match="config.steps=-3"):
    Run(**given | {"steps": -3})


def test_a_calibrated_run_spends_its_target():
  found = glyphs.glyphs(participants=500).calibrated(epsilon=2.0, level="glyph")
  spent = accounting.guarantee(
      found.release, steps=found.steps, delta=found.delta, level="glyph"
  )
  assert 1.98 < spent.epsilon <= 2.0
