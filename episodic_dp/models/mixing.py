"""Whether a network mixes examples, found by trying, whatever its layers are.

Batch normalisation, attention over the batch and the like make the output of
one example depend on the others'. Where examples are clip units that voids the
guarantee: an example would act through gradients that are not its own.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_EXAMPLES = 3
_WEIGHTS = 2  # How many random weights are tried.


def mixes_examples(
    apply: Callable[[Any, jax.Array], jax.Array],
    params: Any,
    input_shape: tuple[int, ...],
) -> bool:
  """Whether changing one example changes the output of another.

  Each of three random examples in turn is replaced by another one, by one a
  thousand times as large, and by NaN, which goes through any arithmetic
  whatever the size of its effect; the outputs of the others must keep their
  bits. The weights are random, since a head of zeros would hide everything
  before it. A network that mixes no example in these trials is taken to treat
  examples alone; one whose outputs are not finite to begin with is not.

  Args:
    apply: (params, images float32 [n, H, W, C]) -> [n, outputs].
    params: a tree of arrays or of their shapes.
    input_shape: (H, W, C).
  """
  apply = jax.jit(apply)
  rng = np.random.default_rng(0)
  for _ in range(_WEIGHTS):
    weights = jax.tree.map(
        lambda p: jnp.asarray(rng.standard_normal(p.shape), p.dtype), params
    )
    images = rng.random((_EXAMPLES, *input_shape), np.float32)
    before = np.asarray(apply(weights, images))
    for i in range(_EXAMPLES):
      others = np.arange(_EXAMPLES) != i
      another = rng.random(input_shape, np.float32)
      for change in (another, 1e3 * another, np.float32(np.nan)):
        changed = images.copy()
        changed[i] = change
        after = np.asarray(apply(weights, changed))
        # NaN differs from itself: outputs that were never finite fail here.
        if not np.array_equal(before[others], after[others]):
          return True
  return False
