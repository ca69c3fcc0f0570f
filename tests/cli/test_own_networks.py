"""Runs with code of one's own and with given weights, from start to end."""

import sys

import jax
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import models
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.analysis import measure
from episodic_dp.models import parts
from tests.cli import tiny_runs
from tests.stored import json_of

pytestmark = pytest.mark.slow  # Every run compiles a step.

OWN = '''
from flax import linen as nn
from episodic_dp import models

class Network(nn.Module):
  outputs: int

  @nn.compact
  def __call__(self, x, train=False):
    x = nn.relu(nn.Dense(8, name="hidden")(x.reshape(x.shape[0], -1)))
    x = nn.Dropout(0.2, deterministic=not train)(x)
    return nn.Dense(self.outputs, name="head")(x)

def make_model(outputs, input_shape):
  module = Network(outputs)

  def random(params, x, key):
    return module.apply(
        {"params": params}, x, train=True, rngs={"dropout": key}
    )

  return models.from_flax(module, input_shape)._replace(random=random)
'''


@pytest.fixture(scope="module")
def splits():
  return tiny_runs.splits()


@pytest.fixture
def folder(tmp_path):
  """The place of a run."""
  return tmp_path / "run"


@pytest.fixture
def own(tmp_path, monkeypatch):
  """Writes a module that is then imported afresh; returns its name."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(tmp_path)
  # Byte code is kept by size and second, and codes here may share both.
  monkeypatch.setattr(sys, "dont_write_bytecode", True)

  def write(source):
    monkeypatch.delitem(sys.modules, "own_layers", raising=False)
    (tmp_path / "own_layers.py").write_text(source)
    return "own_layers:make_model"

  return write


def config_of(name, steps, **options):
  return tiny_runs.maml_config().replace(
      {"steps": steps, "model.name": name, "private_seed": None}
      | {f"model.{field}": value for field, value in options.items()}
  )


def params_of(folder, learner):
  checkpoints = training.checkpoint.Checkpoints(folder)
  like = learner.init(jax.random.key(0))
  return checkpoints.restore(checkpoints.latest(), like)[0]


def test_own_code_trains_resumes_and_is_measured(own, splits, tmp_path, folder):
  name = own(OWN)
  first, _ = tiny_runs.train(config_of(name, 2), folder, splits)
  for changed in (
      OWN.replace("nn.relu", "nn.tanh"),
      OWN.replace("Dense(8", "Dense(9"),
  ):
    own(changed)
    with pytest.raises(training.RunError, match="(another|in learner)"):
      tiny_runs.train(config_of(name, 4), folder, splits)
  with pytest.raises(training.RunError, match="and the model has"):
    measure.measure(folder, splits=splits)
  own(OWN)
  tiny_runs.train(config_of(name, 4), folder, splits, resume="fork")
  whole, _ = tiny_runs.train(config_of(name, 4), tmp_path / "whole", splits)
  for a, b in zip(
      jax.tree.leaves(params_of(folder, first.learner)),
      jax.tree.leaves(params_of(tmp_path / "whole", whole.learner)),
  ):
    assert a.shape == b.shape and np.isfinite(a).all()
  found = measure.measure(folder, splits=splits)
  again = measure.measure(folder, splits=splits)
  assert found["single"] == again["single"]


@pytest.mark.parametrize("trained", ["all", "head"])
def test_a_run_goes_on_from_weights_of_another(
    splits, tmp_path, trained, folder
):
  seeded = config_of("mlp", 2).replace({"private_seed": 1})
  public, _ = tiny_runs.train(seeded, tmp_path / "public", splits)
  start = tmp_path / "start.safetensors"
  models.write_weights(start, params_of(tmp_path / "public", public.learner))
  options = dict(start=str(start), trained=trained)
  config = config_of("mlp", 2, **options)
  spec, result = tiny_runs.train(config, folder, splits)
  caveats = {g.caveat for g in result.guarantees.values()}
  assert all(report.STARTED in caveat for caveat in caveats)
  statement = json_of(folder / "guarantee.json")
  learner = spec.learner
  assert statement["start"] == learner.model.start
  assert not accounting.verify(statement).differences
  statement["start"] = None
  assert accounting.verify(statement).differences
  # What is frozen is the start's, and what is trained moved.
  given = models.read_weights(start)
  params = params_of(folder, learner)
  whole = params if trained == "all" else learner.model.whole(params)
  moved = {
      name for name, array in parts.by_name(whole).items()
      if (array != given[name]).any()
  }
  head = {"head/bias", "head/kernel"}
  assert moved == (set(given) if trained == "all" else head)
  found = measure.measure(folder, splits=splits)
  assert found["single"]["score"].tasks == 8
  assert set(parts.by_name(whole)) == set(given)
  # Other weights are another run, with or without more steps.
  models.write_weights(
      start, jax.tree.map(lambda p: np.asarray(p) + 1, whole)
  )
  for steps in (2, 4):
    changed = config_of("mlp", steps, **options)
    with pytest.raises(training.RunError, match="holds a run that differs in"):
      tiny_runs.train(changed, folder, splits)
