"""Networks that mix examples are refused where examples are clip units."""

from typing import Any

import jax

from episodic_dp import plan as plan_lib
from episodic_dp.models import mixing


def check(
    model: Any, input_shape: tuple[int, ...], clip_unit: str
) -> None:
  """Refuses a network in which one example changes another's outputs.

  The network is tried (`models.mixing`), and its claim not read.

  Args:
    model: `init` and `apply`.
    input_shape: of one example, (H, W, C).
    clip_unit: the level of the examples, for the message.

  Raises:
    UnsoundPlanError: it mixes examples.
  """
  params = jax.eval_shape(model.init, jax.random.key(0))
  if mixing.mixes_examples(model.apply, params, input_shape):
    raise plan_lib.UnsoundPlanError(
        f"clip_unit '{clip_unit}' with a model that mixes examples (changing"
        " one of them changes the outputs of others, as batch normalisation"
        f" does): a gradient would belong to no single {clip_unit}; use"
        " norm='group' or another layer that treats every example alone, such"
        " as layer normalisation"
    )
