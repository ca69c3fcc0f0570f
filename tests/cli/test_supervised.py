"""Learning without tasks, from a config to measured test tasks."""

import dataclasses

import jax
import pytest

from episodic_dp import accounting
from episodic_dp import learners
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.analysis import measure
from episodic_dp.config.presets import glyphs_sample_level
from episodic_dp.models import builder
from episodic_dp.run import Run
from tests import plans
from tests.cli import tiny_runs
from tests.stored import json_of


@pytest.fixture(scope="module")
def splits():
  return tiny_runs.splits()


@pytest.fixture(scope="module")
def trained(splits, tmp_path_factory):
  folder = tmp_path_factory.mktemp("supervised")
  return folder, *tiny_runs.train(tiny_runs.supervised_config(), folder, splits)


def test_it_states_the_guarantee_of_single_examples(trained):
  folder, spec, result = trained
  expected = accounting.guarantee(
    plans.release(plans.tree("drawing", 192), plans.sampling(0.05), "drawing"),
    steps=4,
    delta=1e-5,
    level="drawing",
  )
  stated = json_of(folder / "guarantee.json")["guarantees"]
  assert list(stated) == list(result.guarantees) == ["drawing"]
  assert stated["drawing"]["epsilon"] == expected.epsilon < 10
  assert spec.train.hierarchy.levels == ("drawing",)
  assert spec.learner.model.way == 32


def test_its_test_tasks_are_fine_tuned_with_new_heads(trained, splits, caplog):
  folder, spec, result = trained
  evaluator = spec.evaluator
  config = Run.read(folder)
  found = measure.measure(str(folder), splits=splits, evaluator=evaluator)
  assert json_of(folder / "evaluation.json")["single"]
  assert "the validation data are not those" not in caplog.text
  other = dataclasses.replace(splits, validation=splits.train)
  measure.measure(str(folder), splits=other, evaluator=evaluator)
  assert "the validation data are not those" in caplog.text
  params, _ = training.checkpoint.Checkpoints(folder).restore(
      4, spec.learner.init(jax.random.key(0))
  )
  tuned = learners.FineTuning(
      builder.build(config.model, 5, (12, 12, 1)),
      inner_steps=30,
      body=False,
  )
  tasks = training.sample_tasks(splits.test, count=8, seed=2, **config.task)
  expected = training.Evaluator(tuned).score([params], tasks)
  assert found["single"]["score"] == expected
  assert sorted(found["ensemble"]["steps"]) == [2, 4]
  assert result.score.tasks == 8
  assert (folder / "learning_curve.png").stat().st_size > 0


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"model.outputs": None}, "model.outputs is missing"),
        ({"learner.name": "maml"}, "learns from tasks"),
        ({"evaluation.way": None}, "config.evaluation.way"),
        ({"fine_tuning.stpes": 3}, "fine_tuning.stpes=3"),
        ({"fine_tuning.rate": -1.0}, "rate=-1.0"),
        ({"fine_tuning.optimizer": "adamm"}, "'adamm'"),
        (
            {
                "hierarchy.sizes": (32, 6),
                "hierarchy.levels": ("glyph", "drawing"),
                "plan.stages": ("All()", "Poisson(0.1)"),
            },
            "guarantee is for another sampler",
        ),
    ],
)
def test_wrong_configs_are_named(splits, changes, sentence):
  config = tiny_runs.supervised_config()
  with pytest.raises((training.RunError, plan.PlanError)) as e:
    config.replace(changes).build(splits=splits)
  assert sentence in str(e.value)


def test_too_few_outputs_end_the_run_before_a_step(splits, tmp_path):
  config = tiny_runs.supervised_config().replace({"model.outputs": 31})
  with pytest.raises(plan.PlanError) as e:
    tiny_runs.train(config, tmp_path, splits)
  assert "logits (31,) and the labels are 0 to 31" in str(e.value)
  assert not (tmp_path / "metrics.jsonl").exists()


def test_a_drawing_has_the_same_guarantee_with_samples_or_tasks_clipped():
  """At the sizes of the config; that of task clipping is the smaller one."""
  epsilons = []
  for sample_level in (True, False):
    config = glyphs_sample_level.glyphs_sample_level(sample_level=sample_level)
    found = accounting.guarantees(
        config.release, steps=config.steps, delta=config.delta
    )
    assert list(found) == ["participant", "glyph", "drawing"]
    epsilons.append(found["drawing"].epsilon)
  assert 0.98 * epsilons[0] < epsilons[1] <= epsilons[0]
