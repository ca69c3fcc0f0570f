"""Learning without tasks, from a config to measured test tasks."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import learners
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.analysis import measure
from episodic_dp.config import build
from episodic_dp.config import networks
from episodic_dp.config import RunConfig
from tests.cli import tiny_runs


@pytest.fixture(scope="module")
def splits():
  return tiny_runs.splits()


@pytest.fixture(scope="module")
def trained(splits, tmp_path_factory):
  folder = tmp_path_factory.mktemp("supervised")
  return folder, *tiny_runs.train(tiny_runs.supervised_config(), folder, splits)


def test_it_states_the_guarantee_of_single_examples(trained):
  folder, experiment, result = trained
  expected = accounting.guarantee(
    plan.Release(
      plan.Hierarchy.regular((192,), levels=("drawing",)),
      plan.SamplingPlan((plan.Poisson(0.05),)),
      plan.Mechanism(clip_unit="drawing", noise_multiplier=1.0),
    ),
    steps=4,
    delta=1e-5,
    level="drawing",
  )
  stated = json.loads((folder / "guarantee.json").read_text())["guarantees"]
  assert list(stated) == list(result.guarantees) == ["drawing"]
  assert stated["drawing"]["epsilon"] == expected.epsilon < 10
  assert experiment.spec.train.hierarchy.levels == ("drawing",)
  assert experiment.spec.learner.model.way == 32


def test_its_test_tasks_are_fine_tuned_with_new_heads(trained, splits):
  folder, experiment, result = trained
  evaluator = experiment.spec.evaluator
  found = measure.measure(str(folder), splits=splits, evaluator=evaluator)
  assert json.loads((folder / "evaluation.json").read_text())["single"]
  params, _ = training.Checkpoints(folder, read_only=True).restore(
      4, experiment.spec.learner.init(jax.random.key(0))
  )
  tuned = learners.FineTuning(
      networks.make_model(experiment.config, (12, 12, 1), way=5),
      inner_steps=30,
      body=False,
  )
  tasks = build.draw_tasks(experiment.config, splits.test, test=True)
  expected = training.Evaluator(tuned).score([params], tasks)
  assert found["single"]["score"] == expected
  assert sorted(found["ensemble"]["steps"]) == [2, 4]
  assert result.score.tasks == 8
  assert (folder / "learning_curve.png").stat().st_size > 0


class _Killed(Exception):
  pass


def test_a_killed_run_ends_with_the_same_bits(trained, tmp_path):
  _, experiment, _ = trained

  class Dying:
    """Validates at 0 and 2 steps, and takes the process with it at 4."""

    def __init__(self):
      self.calls = 0

    def score(self, members, tasks):
      self.calls += 1
      if self.calls == 3:
        raise _Killed
      return experiment.spec.evaluator.score(members, tasks)

  with pytest.raises(_Killed):
    spec = dataclasses.replace(experiment.spec, evaluator=Dying())
    training.train(spec, tmp_path)
  assert training.Checkpoints(tmp_path, read_only=True).latest() == 2
  assert training.train(experiment.spec, tmp_path).steps == 4
  like = experiment.spec.learner.init(jax.random.key(0))
  expected, found = (
      training.Checkpoints(f, read_only=True).restore(4, like)[0]
      for f in (trained[0], tmp_path)
  )
  jax.tree.map(np.testing.assert_array_equal, found, expected)
  moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), found, like)
  assert max(jax.tree.leaves(moved)) > 1e-3


def _without_outputs(c):
  c.model.outputs = None


def _one_class_less(c):
  c.model.outputs = 31


def _with_an_episode(c):
  c.episode = dict(way=5, shot=1, query=2, form="unit")
  c.plan.stages = ("Poisson(0.3)", "FixedSize(5)", "FixedSize(3)")
  c.mechanism.clip_unit = "participant"
  c.hierarchy = dict(
      sizes=(4, 8, 6), levels=("participant", "glyph", "drawing")
  )


def _maml(c):
  c.learner.name = "maml"


def _without_way(c):
  c.evaluation.way = None


def _misspelt(c):
  c.fine_tuning.stpes = 3


def _negative_rate(c):
  c.fine_tuning.rate = -1.0


def _unknown_optimizer(c):
  c.fine_tuning.optimizer = "adamm"


def _tree(c):
  c.hierarchy = dict(sizes=(32, 6), levels=("glyph", "drawing"))
  c.plan.stages = ("All()", "Poisson(0.1)")


@pytest.mark.parametrize(
    "change, sentence",
    [
        (_without_outputs, "model.outputs is missing"),
        (_with_an_episode, "learns single examples and config.episode"),
        (_maml, "config.episode is missing and learner.name='maml'"),
        (_without_way, "set evaluation.way"),
        (_misspelt, "fine_tuning.stpes is not read"),
        (_negative_rate, "rate=-1.0"),
        (_unknown_optimizer, "'adamm'"),
        (_tree, "give one level, levels=('drawing',) and sizes=(192,)"),
    ],
)
def test_wrong_configs_are_named(splits, change, sentence):
  config = tiny_runs.supervised_config()
  change(config)
  with pytest.raises((training.RunError, plan.PlanError)) as e:
    build.build(RunConfig.parse(config), splits=splits)
  assert sentence in str(e.value)


def test_too_few_outputs_end_the_run_before_a_step(splits, tmp_path):
  config = tiny_runs.supervised_config()
  _one_class_less(config)
  with pytest.raises(plan.PlanError) as e:
    tiny_runs.train(config, tmp_path, splits)
  assert "logits (31,) and the labels are 0 to 31" in str(e.value)
  assert not (tmp_path / "metrics.jsonl").exists()
