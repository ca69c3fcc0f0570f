"""Digests: equal for equal runs wherever they run, and for no others."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import private
from episodic_dp import training
from episodic_dp.private import sections
from episodic_dp.training import data_digest
from episodic_dp.training import identity as identity_lib
from episodic_dp.training import spec as spec_lib
from tests.training import tiny_run


def _identify(spec):
  state = spec_lib.initial_state(spec, private.secret_key(bytes(8)))
  return identity_lib.identify(spec, spec_lib.make_step(spec), state)


@pytest.fixture(scope="module")
def first():
  return _identify(tiny_run.spec(3)).parts


def _changed(first, spec):
  """The names of the parts that differ."""
  parts = _identify(spec).parts
  assert parts.keys() == first.keys() == {
      *identity_lib.STABLE, *identity_lib.TRACED
  }  # fmt: skip
  return {name for name, digest in parts.items() if digest != first[name]}


def _with_compute(**options):
  return tiny_run.spec(3, compute=private.Compute(**options))


def test_where_a_run_is_computed_is_not_what_it_is(first):
  assert _changed(first, tiny_run.spec(9, seed=None)) == set()
  mesh = training.make_mesh(1)
  assert _changed(first, _with_compute(mesh=mesh)) == set()
  assert _changed(first, _with_compute(diagnostics=True)) == set()
  assert _changed(first, _with_compute(microbatch_size=3)) == set()
  streamed = dataclasses.replace(tiny_run.dataset(), resident=False)
  assert _changed(first, tiny_run.spec(3, train=streamed)) == set()


def test_microbatches_hide_no_other_learner(first):
  scaled = dataclasses.replace(tiny_run.learner(), inner_rate=0.4)
  compute = private.Compute(microbatch_size=3, noise_terms=2)
  spec = tiny_run.spec(3, learner=scaled, compute=compute)
  assert _changed(first, spec) == {"learner", "noise"}


def test_each_part_is_told_by_its_name(first):
  train = tiny_run.dataset()
  images = train.images.copy()
  images[-1, -1, -1, -1] ^= 1
  rows = dataclasses.replace(train, rows=lambda leaf: jnp.flip(leaf))
  scaled = learners.MAML(
      tiny_run.learner().model, inner_steps=1, inner_rate=0.4
  )
  for spec, expected in (
      # An argument of the program: another number is another release alone.
      (tiny_run.spec(3, noise_multiplier=2.0), {"release"}),
      (tiny_run.spec(3, optimizer=optax.adam(0.02)), {"optimizer"}),
      (tiny_run.spec(3, learner=scaled), {"learner"}),
      (dataclasses.replace(tiny_run.spec(3), seed=1), {"initial parameters"}),
      (_with_compute(noise_terms=2), {"noise"}),
      (
          tiny_run.spec(3, train=dataclasses.replace(train, images=images)),
          {"data"},
      ),
      (tiny_run.spec(3, train=rows), {"sampler"}),
  ):
    assert _changed(first, spec) == expected


def test_a_constant_that_a_function_closes_over_is_seen():
  def digest(array):
    return sections.function_digest(lambda x: x + array, jnp.zeros(3))

  one, other = np.arange(3.0), np.arange(3.0)
  other[2] = np.nextafter(np.float32(2), np.float32(3))
  assert digest(jnp.asarray(one)) == digest(jnp.asarray(one))
  assert digest(jnp.asarray(one)) != digest(jnp.asarray(other))
  assert digest(1.5) != digest(2.5)


def test_functions_that_differ_in_one_place_differ():
  functions = [
      lambda x, y: x - y,
      lambda x, y: y - x,
      lambda x, y: (x - y) * 1,
      lambda x, y: jax.nn.relu(x) - y,
      lambda x, y: jax.lax.fori_loop(0, 3, lambda i, z: z - y, x),
      lambda x, y: jax.lax.fori_loop(0, 4, lambda i, z: z - y, x),
      lambda x, y: jax.vmap(lambda z: z - y.sum())(x),
      lambda x, y: jnp.dot(x, y, precision="highest") + x,
      lambda x, y: jnp.dot(x, y) + x,
  ]
  x = jnp.ones(4)
  found = [sections.function_digest(f, x, x) for f in functions]
  assert len(set(found)) == len(functions)
  assert found == [sections.function_digest(f, x, x) for f in functions]


def test_the_stream_is_told_from_the_other_one():
  found = identity_lib.stream_digest()
  assert found == identity_lib.stream_digest()
  with jax.threefry_partitionable(False):
    assert identity_lib.stream_digest() != found


def test_arrays_of_any_layout_have_one_digest(tmp_path):
  array = np.arange(3 * 2**20, dtype=np.uint8).reshape(-1, 64, 3)
  array = np.concatenate([array] * 4)  # More than one block.
  found = data_digest.array_digest(array)
  np.save(tmp_path / "mapped.npy", array)
  mapped = np.load(tmp_path / "mapped.npy", mmap_mode="r")
  strided = np.repeat(array, 2, axis=0)[::2]
  for same in (mapped, strided, np.asfortranarray(array)):
    assert data_digest.array_digest(same) == found
  for place in (0, 4321, array.size - 1):
    other = array.copy()
    other.reshape(-1)[place] ^= 1
    assert data_digest.array_digest(other) != found
  assert data_digest.array_digest(array.reshape(-1, 192)) != found
  assert data_digest.array_digest(array.view(np.int8)) != found
  assert data_digest.array_digest(array[:0]) != found


@pytest.mark.slow  # Needs a gigabyte.
def test_many_images_take_a_second_or_two():
  images = np.ones((60_000, 84, 84, 3), np.uint8)
  began = time.monotonic()
  data_digest.array_digest(images)
  assert time.monotonic() - began < 10
