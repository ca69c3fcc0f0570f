"""The network that a config names, and what a run writes down of it."""

import os
import re

import jax
import numpy as np
import pytest

from episodic_dp import models
from episodic_dp import options
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.config import networks
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import glyphs
from episodic_dp.config.presets import glyphs_supervised
from episodic_dp.models import parts

SHAPES = {"conv1d": (16, 2)}
OWN = '''
import jax, jax.numpy as jnp
from episodic_dp import models

def make_model(outputs, input_shape, scale=1.0):
  n = 1
  for size in input_shape:
    n *= size
  def init(key):
    return {"head": {"kernel": scale * jax.random.normal(key, (n, outputs))}}
  def apply(params, x):
    return x.reshape(len(x), -1) @ params["head"]["kernel"]
  return models.Model(init, apply)

def raises(outputs, input_shape):
  raise KeyError("no such layer")

def returns(outputs, input_shape):
  return 3

def misfits(outputs, input_shape):
  return make_model(outputs, (7,))

constant = 3
'''


def config_of(preset=glyphs, **changes):
  config = RunConfig.parse(preset.get_config())
  config = config.with_changes(
      {name.replace("__", "."): value for name, value in changes.items()}
  )
  config.check_complete()
  return config


def shapes_of(model):
  return jax.eval_shape(model.init, jax.random.key(0))


@pytest.fixture
def own(tmp_path, monkeypatch):
  """Return a function that writes a module of own code and returns its name."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr("sys.path", [*os.sys.path])

  def write(source=OWN):
    name = f"own_{abs(hash((str(tmp_path), source)))}"
    (tmp_path / f"{name}.py").write_text(source)
    return name

  return write


@pytest.mark.parametrize("name", options.NETWORKS)
def test_every_network_of_the_library_can_be_named(name):
  shape = SHAPES.get(name, (16, 16, 1))
  config = config_of(model__name=name, model__width=8, model__widths=(8,))
  model = networks.make_model(config, shape, way=3)
  assert (model.way, model.input_shape) == (3, shape)
  assert model.mixes_examples == (name != "mlp")
  assert networks.recorded(config, model) == config.as_json()


def test_a_metric_learner_is_given_features():
  for name, features in {"conv6": 8, "conv1d": 8, "mlp": 5}.items():
    config = config_of(
        model__name=name, model__width=8, learner__name="protonet"
    )
    shape = SHAPES.get(name, (16, 16, 1))
    assert networks.make_model(config, shape).way == features


def test_own_code_is_called_with_what_it_is_for(own):
  name = own()
  config = config_of(
      model__name=f"{name}:make_model", model__options={"scale": 0.0}
  )
  networks.check(config.model)
  model = networks.make_model(config, (3, 2))
  params = model.init(jax.random.key(0))
  assert params["head"]["kernel"].shape == (6, 5)
  assert (params["head"]["kernel"] == 0).all()
  assert networks.make_model(config, (3, 2), way=2).init(
      jax.random.key(0)
  )["head"]["kernel"].shape == (6, 2)
  supervised = config_of(
      glyphs_supervised, model__name=f"{name}:make_model", model__outputs=7
  )
  assert shapes_of(networks.make_model(supervised, (3, 2)))["head"][
      "kernel"
  ].shape == (6, 7)


@pytest.mark.parametrize(
    "named, source, sentence",
    [
        ("absent_module:make", OWN, "No module named 'absent_module'"),
        ("OWN:make", OWN, "has no attribute 'make'"),
        ("OWN:constant", OWN, "not a callable"),
        ("OWN:", OWN, "cannot be used"),
        (":make", OWN, "cannot be used"),
        ("OWN:raises", OWN, "failed for outputs=5 and input_shape=(4, 4, 1)"
                            " (KeyError: 'no such layer', OWN.py line 16)"),
        ("OWN:returns", OWN, "returned int: return a models.Model"),
        ("OWN:misfits", OWN, "TypeError: dot_general requires contracting"),
        ("OWN:make_model", "def make_model(outputs): pass",
         "defined as make_model(outputs, input_shape)"),
        ("OWN:make_model", "def make_model(:", "SyntaxError"),
        ("OWN:make_model", "import absent_library", "'absent_library'"),
        ("OWN:make_model", "1 / 0", "division by zero, OWN.py line 1"),
    ],
)
def test_wrong_own_code_is_one_sentence(own, named, source, sentence):
  name = own(source)
  config = config_of(model__name=named.replace("OWN", name))
  with pytest.raises(
      training.RunError, match=re.escape(sentence.replace("OWN", name))
  ) as e:
    networks.check(config.model)  # Before there are data, where it can.
    networks.make_model(config, (4, 4, 1))
  assert "\n" not in str(e.value)


def test_a_run_records_its_own_code_and_knows_it_again(own, caplog):
  name = own()
  config = config_of(model__name=f"{name}:make_model")
  model = networks.make_model(config, (3, 2))
  said = networks.recorded(config, model)["model"]
  again = config.with_changes({
      f"model.{field}": said[field]
      for field in ("source_digest", "shapes_digest")
  })
  networks.make_model(again, (3, 2))
  assert not caplog.text
  with pytest.raises(training.RunError, match="of other names or shapes than"):
    networks.make_model(again, (3, 3))
  networks.make_model(again, (3, 2), way=9)  # Another head is no change.
  with open(f"{name}.py", "a") as out:
    out.write("# Other layers.\n")
  networks.make_model(again, (3, 2))
  assert "has changed since the run last resumed" in caplog.text


@pytest.fixture
def start(tmp_path):
  model = networks.make_model(config_of(model__width=4), (16, 16, 1))
  path = tmp_path / "start.npz"
  zeros = jax.tree.map(
      lambda s: np.zeros(s.shape, s.dtype), shapes_of(model)
  )
  models.write_weights(path, zeros)
  return path


def test_a_start_is_read_recorded_and_known_again(start, monkeypatch):
  monkeypatch.chdir(start.parent)
  config = config_of(
      model__width=4, model__start="start.npz", model__trained="scale_shift"
  )
  networks.check(config.model)
  model = networks.make_model(config, (16, 16, 1))
  assert set(parts.by_name(shapes_of(model))) == {
      *(f"block_{i}/{part}" for i in range(4) for part in ("scale", "bias")),
      "head/kernel", "head/bias",
  }
  said = networks.recorded(config, model)["model"]
  assert said["start"] == str(start) and said["start_digest"] == model.start
  assert said["trained"] == "scale_shift"
  again = config.with_changes({"model.start_digest": said["start_digest"]})
  networks.make_model(again, (16, 16, 1))
  weights = models.read_weights(start)
  np.savez(start, **{k: v + 1 for k, v in weights.items()})
  with pytest.raises(training.RunError, match="holds other weights .*put back"):
    networks.check(again.model)


def test_starts_that_cannot_be_are_named(start):
  with pytest.raises(plan.PlanError, match="config.model.rank=0"):
    config_of(model__start=str(start), model__rank=0)
  with pytest.raises(ValueError, match="absent.npz cannot be read"):
    networks.check(config_of(model__start="absent.npz").model)
  with pytest.raises(ValueError, match=r"config.model.start=.*start.npz has"):
    networks.make_model(
        config_of(model__width=8, model__start=str(start)), (16, 16, 1)
    )
  config = config_of(
      model__width=4, model__start=str(start), model__trained="head",
      learner__name="protonet",
  )
  with pytest.raises(ValueError, match="has no layer 'head' .*scale_shift"):
    networks.make_model(config, (16, 16, 1))
