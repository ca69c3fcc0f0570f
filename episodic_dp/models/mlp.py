"""A multilayer perceptron in Flax Linen: matrix products and ReLUs.

The network of sinusoid regression in Finn, Abbeel and Levine, "Model-Agnostic
Meta-Learning" (ICML 2017), section 5.1: two hidden layers of 40.
"""

from flax import linen as nn
import jax


class MLP(nn.Module):
  """Hidden layers with ReLU, and a linear layer "head".

  Attributes:
    outputs: numbers of the last layer.
    widths: those of the hidden layers.
  """

  outputs: int
  widths: tuple[int, ...] = (40, 40)

  @nn.compact
  def __call__(self, examples: jax.Array) -> jax.Array:
    """[n, ...], taken as one row of numbers each -> [n, outputs]."""
    x = examples.reshape(examples.shape[0], -1)
    for i, width in enumerate(self.widths):
      x = nn.relu(nn.Dense(width, name=f"hidden_{i}")(x))
    return nn.Dense(self.outputs, name="head")(x)
