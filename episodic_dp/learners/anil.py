"""ANIL: the inner steps change the head alone.

Raghu, Raghu, Bengio and Vinyals, "Rapid Learning or Feature Reuse? Towards
Understanding the Effectiveness of MAML" (ICLR 2020), section 4, equation 3
("almost no inner loop").
"""

import dataclasses
from typing import Any

import jax

from episodic_dp.learners import maml
from episodic_dp.models import parts


@dataclasses.dataclass(frozen=True)
class ANIL(maml.MAML):
  """MAML whose inner steps leave the body of the network as it is.

  The body is learned by the outer steps alone. A head that adapts alone needs
  larger inner steps than MAML, or more of them: every task numbers its classes
  anew, so that the head starts at chance, and one short step leaves it there.

  The switches of MAML++ apply to the head where they concern what adapts.

  Attributes:
    head: the name of the network's last layer, at the top of its parameters.
  """

  head: str = "head"

  def _moves(self, weights: Any) -> parts.Mask:
    return jax.tree.map(
        lambda head, moves: head and moves,
        parts.head(weights, self.head),
        super()._moves(weights),
    )
