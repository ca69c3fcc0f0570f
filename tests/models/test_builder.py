"""Networks by their options: the library's, own code, public starts."""

import os
import re

import jax
import numpy as np
import pytest

from episodic_dp import errors
from episodic_dp import models
from episodic_dp import options
from episodic_dp.models import builder
from episodic_dp.models import parts
from tests.refusals import assert_refused

SHAPES = {"conv1d": (16, 2)}
IMAGE = (16, 16, 1)
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

def cannot_begin(outputs, input_shape):
  def init(key):
    raise RuntimeError("no weights")
  return make_model(outputs, input_shape)._replace(
      init=init, input_shape=tuple(input_shape), way=outputs
  )

constant = 3
'''


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
  shape = SHAPES.get(name, IMAGE)
  network = options.Network(name=name, width=8, widths=(8,))
  model = builder.build(network, 3, shape)
  assert (model.way, model.input_shape) == (3, shape)
  assert model.mixes_examples == (name not in ("mlp", "features"))
  assert builder.build(network, None, shape).way is not None  # Features.


def test_own_code_is_called_with_its_options(own):
  network = options.Network(
      name=f"{own()}:make_model", options={"scale": 0.0}
  )
  model = builder.build(network, 5, (3, 2))
  params = model.init(jax.random.key(0))
  assert params["head"]["kernel"].shape == (6, 5)
  assert (params["head"]["kernel"] == 0).all()


@pytest.mark.parametrize(
    "named, source, sentence",
    [
        ("absent_module:make", OWN, "No module named 'absent_module'"),
        ("OWN:make", OWN, "has no attribute 'make'"),
        ("OWN:constant", OWN, "not callable"),
        ("OWN:", OWN, "failed for outputs=5"),
        (":make", OWN, "failed for outputs=5"),
        ("OWN:raises", OWN, "failed for outputs=5 and input_shape=(4, 4, 1)"
                            " (KeyError: 'no such layer', OWN.py line 16)"),
        ("OWN:returns", OWN, "it returned int, not models.Model"),
        ("OWN:cannot_begin", OWN, "(RuntimeError: no weights"),
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
  network = options.Network(name=named.replace("OWN", name))
  assert_refused(
      errors.RunError, re.escape(sentence.replace("OWN", name)), builder.build,
      network, 5, (4, 4, 1),
  )


@pytest.fixture
def start(tmp_path):
  model = builder.build(options.Network(width=4), 5, IMAGE)
  path = tmp_path / "start.npz"
  zeros = jax.tree.map(
      lambda s: np.zeros(s.shape, s.dtype), shapes_of(model)
  )
  models.write_weights(path, zeros)
  return path


def test_a_start_is_read_and_known_again(start):
  chosen = dict(width=4, start=str(start), trained="scale_shift")
  model = builder.build(options.Network(**chosen), 5, IMAGE)
  assert set(parts.by_name(shapes_of(model))) == {
      *(f"block_{i}/{part}" for i in range(4) for part in ("scale", "bias")),
      "head/kernel", "head/bias",
  }
  again = options.Network(**chosen, start_digest=model.start)
  assert builder.build(again, 5, IMAGE).start == model.start
  weights = models.read_weights(start)
  np.savez(start, **{k: v + 1 for k, v in weights.items()})
  with pytest.raises(errors.RunError, match="holds other weights .*restore"):
    builder.build(again, 5, IMAGE)


def test_a_start_of_another_version_is_that_of_the_run():
  old = options.Network(start="scenes", start_digest="0", width=32)
  assert not old.cosine and options.Network(start="scenes").cosine
  with pytest.raises(errors.RunError, match="use the version of episodic_dp"):
    builder.build(old, None, (32, 32, 3))


@pytest.mark.parametrize(
    "changes, outputs, match",
    [
        (dict(start="absent.npz"), 5, "absent.npz does not exist"),
        (dict(width=8), 5, r"^start=.*start.npz has"),
        (dict(trained="head"), None, "no layer 'head'"),
        (dict(name="features", start="glyphs"), 5, "none for features .in a c"),
    ],
)
def test_starts_that_cannot_be_are_named(start, changes, outputs, match):
  chosen = dict(width=4, start=str(start)) | changes
  with pytest.raises((ValueError, FileNotFoundError), match=match):
    builder.build(options.Network(**chosen), outputs, IMAGE)
