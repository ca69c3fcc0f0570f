"""Initialisations compared on the same test tasks."""

import json
import pathlib

import jax
import ml_collections
import numpy as np
import pytest

from episodic_dp import options
from episodic_dp import training
from episodic_dp.analysis import initialisations
from episodic_dp.config import learners as config_learners
from episodic_dp.config import networks
from episodic_dp.config import RunConfig
from episodic_dp.config import saved
from episodic_dp.learners import naming
from episodic_dp.output import files
from episodic_dp.training import workdir as workdir_lib
from tests.cli import tiny_runs

OPTIONS = dict(steps=2, rate=0.1, body=True, optimizer="sgd")


@pytest.fixture(scope="module")
def splits():
  return tiny_runs.splits()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
  """The folders of a supervised run and of a run of MAML, after no step."""
  parent = tmp_path_factory.mktemp("runs")
  for name, steps, config in (
      ("pre_training", 4, tiny_runs.supervised_config()),
      ("maml", 2, tiny_runs.maml_config("private=0")),
  ):
    tiny_runs.save(config, parent / name, steps)
  return [str(parent / "pre_training"), str(parent / "maml")]


@pytest.fixture(scope="module")
def results(runs, splits, tmp_path_factory):
  out = tmp_path_factory.mktemp("out")
  found = initialisations.fine_tune(
      runs, out, shots=(1, 3), splits=splits, tasks=6, **OPTIONS
  )
  return out, found


def _params(folder):
  learner = config_learners.make_learner(saved.read(folder), (12, 12, 1))
  checkpoints = training.Checkpoints(folder, read_only=True)
  like = learner.init(jax.random.key(0))
  return checkpoints.restore(checkpoints.latest(), like)[0]


@pytest.mark.slow  # It reads runs that are trained for it.
def test_every_start_is_measured_on_the_same_tasks(runs, splits, results):
  _, found = results
  names = [s["name"] for s in found["initialisations"]]
  assert names == ["random", "pre_training", "maml"]
  config = RunConfig.parse(tiny_runs.supervised_config())
  model = networks.make_model(config, (12, 12, 1), way=5)
  settings = options.FineTuning(**OPTIONS)
  tuned = naming.make_fine_tuning(model, settings, fresh_head=False)
  pre, maml = (_params(folder) for folder in runs)
  assert maml["head"]["kernel"].shape == (8, 5)  # Kept.
  head = {"kernel": np.zeros((8, 5)), "bias": np.zeros(5)}
  starts = [model.init(jax.random.key(0)), {**pre, "head": head}, maml]
  evaluator = training.Evaluator(tuned)
  tasks = training.draw(splits.test, way=5, shot=3, query=2, count=6, seed=2)
  for start, entry in zip(starts, found["initialisations"]):
    expected = evaluator.score([start], tasks).mean
    assert entry["accuracy"]["3"]["mean"] == expected
    assert list(entry["accuracy"]) == ["1", "3"]


@pytest.mark.slow  # It reads runs that are trained for it.
def test_guarantees_are_those_that_the_runs_state(runs, results):
  _, found = results
  random, pre, maml = found["initialisations"]
  assert random["guarantee"] is None
  stated = json.loads(
      (pathlib.Path(runs[0]) / "guarantee.json").read_text()
  )["guarantees"]["drawing"]
  assert pre["guarantee"]["drawing"]["epsilon"] == stated["epsilon"]
  assert maml["guarantee"]["participant"]["epsilon"] == "inf"
  text = initialisations.table(found)
  assert "add or remove one drawing; 4 steps" in text
  assert "maml: no formal guarantee" in text
  assert "Reproducible; no guarantee against" in text  # The seed is fixed.


def _copy(run, folder, name, change):
  """A folder with the changed config of a run and nothing else."""
  config = ml_collections.ConfigDict(saved.read(run).as_json())
  with config.unlocked():
    change(config)
  (folder / name).mkdir()
  files.write_json(
      folder / name / workdir_lib.CONFIG, RunConfig.parse(config).as_json()
  )
  return str(folder / name)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"learner.name": "protonet"}, "'protonet', whose network has no head"),
        ({"learner.per_step_norm": True}, "learner.per_step_norm=True"),
        ({"model.widths": (9,)}, r"model.widths=(9,) and the comparison (8,)"),
        ({"data.name": "omniglot"}, "data.name='omniglot'"),
        ({"data.options.seed": 3}, "data.options.seed=3"),
        ({}, "has no checkpoint yet"),
    ],
)
def test_runs_that_cannot_be_compared_are_named(
    runs, splits, tmp_path, change, sentence
):
  other = _copy(
      runs[1], tmp_path, "other", lambda c: c.update_from_flattened_dict(change)
  )
  with pytest.raises(training.RunError) as e:
    initialisations.fine_tune(
        [runs[0], other], tmp_path, shots=(1,), splits=splits, **OPTIONS
    )
  assert sentence in str(e.value)


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"shots": (1, 5)}, "7 "),
        ({"shots": (0,)}, "shots=0"),
        ({"shots": (1, 1)}, "shots=1,1"),
        ({"steps": 0}, "steps=0"),
        ({"rate": 0.0}, "rate=0.0"),
    ],
)
def test_tasks_that_cannot_be_drawn_are_named(
    runs, splits, tmp_path, options, sentence
):
  wanted = {"shots": (1,)} | OPTIONS | options
  with pytest.raises(ValueError) as e:
    initialisations.fine_tune(runs, tmp_path, splits=splits, **wanted)
  assert sentence in str(e.value)
