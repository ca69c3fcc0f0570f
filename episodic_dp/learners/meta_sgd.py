"""Meta-SGD: a learned rate for every single parameter.

Li, Zhou, Chen and Li, "Meta-SGD: Learning to Learn Quickly for Few-Shot
Learning" (2017), equation 2 and Algorithm 1.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from episodic_dp.learners import maml


@dataclasses.dataclass(frozen=True)
class MetaSGD(maml.MAML):
  """MAML whose inner gradient is multiplied by a learned vector.

  The meta-parameters are {"model": the network's, "rates": arrays like those
  that adapt}, twice as many as MAML's: noise of a given multiplier has a norm
  larger by the root of two. All rates begin at `inner_rate` (the paper draws
  them from [0.005, 0.1]) and may become negative, as in the paper. With several
  inner steps the rates are the same in each; the paper has one.

  The attributes are those of `MAML`.
  """

  inner_steps: int = 1

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.learned_rates:
      raise ValueError(
          "learned_rates=True is a rate per array and step, and Meta-SGD learns"
          " one per parameter: leave it out, or use MAML"
      )

  @property
  def _learns_rates(self) -> bool:
    return True

  def _initial_rates(self, moving: Any) -> Any:
    return jax.tree.map(lambda p: jnp.full_like(p, self.inner_rate), moving)

  def _rates_of_step(self, rates: Any, i: jax.Array | int) -> Any:
    del i
    return rates
