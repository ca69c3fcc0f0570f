"""Which form of a block is computed, and that all forms are equal."""

import jax
import numpy as np
import pytest

from episodic_dp import backends
from episodic_dp.models import block
from episodic_dp.models.cpu import direct
from episodic_dp.models.cpu import first_block
from episodic_dp.models.cpu import wide_block

FIRST = (2, 4, 6, 1), (3, 3, 1, 9)
WIDE = (32, 10, 10, 64), (3, 3, 64, 64)
OTHER = (2, 3, 3, 9), (3, 3, 9, 9)
MANY_CHANNELS = (2, 4, 4, 64), (3, 3, 64, 64)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("norm", block.NORMS)
def test_only_a_cpu_takes_other_forms_and_some_only_with_batch_norm(
    monkeypatch, backend, norm
):
  taken = []
  for form, name in (
      (first_block, "apply"), (wide_block, "apply"), (direct, "same")
  ):
    plain = getattr(form, name)
    monkeypatch.setattr(
        form, name, lambda *a, f=plain, n=form: (taken.append(n), f(*a))[1]
    )
  with backends.assumed(backend):
    for shapes in (FIRST, WIDE, OTHER, MANY_CHANNELS):
      x, kernel = (jax.ShapeDtypeStruct(s, np.float32) for s in shapes)
      affine = jax.ShapeDtypeStruct(shapes[1][-1:], np.float32)
      scale = None if norm == "none" else affine
      jax.eval_shape(
          lambda x, k, s, b: block.apply(x, k, s, b, norm),
          x, kernel, scale, affine,
      )  # fmt: skip
  expected = {
      ("cpu", "batch"): [first_block, direct, wide_block, direct],
      ("cpu", "group"): [direct] * 3, ("cpu", "none"): [direct] * 3,
  }
  assert taken == expected.get((backend, norm), [])


@pytest.mark.parametrize("shapes", [FIRST, WIDE, MANY_CHANNELS])
def test_all_forms_give_the_same_block(shapes):
  rng = np.random.default_rng(0)
  x, kernel = (rng.standard_normal(s, np.float32) for s in shapes)
  scale, bias = rng.standard_normal((2, kernel.shape[-1]), np.float32)
  outputs = []
  for backend in ("cpu", "gpu"):
    with backends.assumed(backend):
      outputs.append(
          jax.jit(lambda *a: block.apply(*a, "batch"))(x, kernel, scale, bias)
      )
  np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)
