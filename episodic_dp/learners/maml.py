"""MAML: adapt by gradient steps, learn the weights to adapt from.

Finn, Abbeel and Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of
Deep Networks" (ICML 2017), equation 1 and Algorithm 1; the first-order form is
that of its section 5.2. The switches of MAML++ are those of Antoniou, Edwards
and Storkey, "How to train your MAML" (ICLR 2019), sections 4 and 5.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from episodic_dp.learners import descent
from episodic_dp.learners import learner
from episodic_dp.learners import losses
from episodic_dp.learners import multi_step
from episodic_dp.models import model as model_lib
from episodic_dp.models import parts

Params = Any


@dataclasses.dataclass(frozen=True)
class MAML(learner.BaseLearner):
  """Model-agnostic meta-learning, with the pieces of MAML++ as switches.

  The meta-parameters are the network's. With `per_step_norm` its norm
  parameters have an axis of inner steps before their own; with `learned_rates`
  the whole is {"model": those, "rates": the rates}.

  Attributes:
    model: the network.
    inner_steps: gradient steps on the support set, at least 1.
    inner_rate: their learning rate, positive; where rates are learned, their
      initial value.
    order: "second" differentiates through the inner steps; "first" takes the
      inner gradients for constants.
    unroll: write the inner steps out one after the other. Otherwise they are a
      scan: a smaller program, faster to compile for many steps and 10 to 40 %
      slower to run (five steps on two CPU cores).
    task_loss: see `BaseLearner`.
    learned_rates: learn one inner rate for every array of parameters and inner
      step ("per-layer per-step learning rates").
    per_step_norm: learn scale and bias of the norm layers anew for every inner
      step, and leave them out of the inner loop. Step i's are used by its own
      support pass and by the query pass after it. Statistics are those of the
      batch at hand in any case; none are carried.
    loss_weights: of the query loss after each inner step ("multi-step loss"):
      `inner_steps` numbers, or outer step -> such an array (`multi_step.
      annealed`), which `at_step` resolves; None for the last step's loss alone.
  """

  model: model_lib.Model
  _: dataclasses.KW_ONLY
  inner_steps: int = 5
  inner_rate: float = 0.1
  order: learner.Order = "second"
  unroll: bool = True
  task_loss: losses.TaskLoss = losses.cross_entropy
  learned_rates: bool = False
  per_step_norm: bool = False
  loss_weights: Any = None

  def __post_init__(self) -> None:
    if self.inner_steps < 1:
      raise ValueError(f"inner_steps {self.inner_steps} must be at least 1")
    if not self.inner_rate > 0:
      raise ValueError(f"inner_rate {self.inner_rate} must be positive")
    if self.order not in ("first", "second"):
      raise ValueError(f"order {self.order!r} must be 'first' or 'second'")
    multi_step.check(self.loss_weights, self.inner_steps)

  def init(self, key: jax.Array) -> Params:
    """The model's initial parameters, and the rates where they are learned."""
    weights = self.model.init(key)
    if self.per_step_norm:
      weights = self._stack_norms(weights)
    moving, _ = parts.split(weights, self._moves(weights))
    rates = self._initial_rates(moving)
    return weights if rates is None else {"model": weights, "rates": rates}

  def adapt(
      self,
      params: Params,
      support: Any,
      *,
      inner_gradient: descent.InnerGradient = jax.grad,
  ) -> Params:
    """The network's parameters after `inner_steps` steps; see `Learner`."""
    return self._descend(params, support, inner_gradient)[0]

  def loss(self, params: Params, episode: Any) -> jax.Array:
    """The query loss after adapting to the support set of one episode.

    With `loss_weights` the weighted sum of the query losses after each step.
    """
    if self.loss_weights is None:
      return super().loss(params, episode)
    weights = multi_step.resolved(self.loss_weights)
    _, values = self._descend(
        params,
        episode.support,
        jax.grad,
        lambda network, i: self.in_pass(self.inner_steps + i).adapted_loss(
            network, episode.query
        ),
    )
    return jnp.vdot(weights, values)

  def at_step(self, step: jax.Array) -> "MAML":
    """The learner of one outer step, whose number is public."""
    if not callable(self.loss_weights):
      return self
    return dataclasses.replace(self, loss_weights=self.loss_weights(step))

  def _descend(self, params, support, inner_gradient, visit=None):
    """The adapted network, and `visit(network, i)` after each step."""
    weights, rates = params, None
    if self._learns_rates:
      weights, rates = params["model"], params["rates"]
    moving, still = parts.split(weights, self._moves(weights))

    def network(moving, i):
      return self._select_norms(parts.merge(moving, still), i)

    def inner_loss(moving, examples, i):
      return self.in_pass(i).adapted_loss(network(moving, i), examples)

    moving, values = descent.descend(
        inner_gradient(inner_loss),
        moving,
        support,
        steps=self.inner_steps,
        rate=(
            (lambda i: self._rates_of_step(rates, i))
            if self._learns_rates
            else self.inner_rate
        ),
        order=self.order,
        unroll=self.unroll,
        visit=visit and (lambda moving, i: visit(network(moving, i), i)),
    )
    return network(moving, self.inner_steps - 1), values

  # What ANIL and Meta-SGD override.

  def _moves(self, weights: Params) -> parts.Mask:
    """Which parameters the inner steps change."""
    if not self.per_step_norm:
      return parts.everything(weights)
    return jax.tree.map(lambda norm: not norm, parts.norms(weights))

  @property
  def _learns_rates(self) -> bool:
    return self.learned_rates

  def _initial_rates(self, moving: Params) -> Params | None:
    """The rates to learn, for the parameters that adapt."""
    if not self.learned_rates:
      return None
    return jax.tree.map(
        lambda p: jnp.full(self.inner_steps, self.inner_rate, p.dtype), moving
    )

  def _rates_of_step(self, rates: Params, i: jax.Array | int) -> Params:
    return jax.tree.map(lambda r: r[i], rates)

  def _stack_norms(self, weights: Params) -> Params:
    mask = parts.norms(weights)
    if not any(jax.tree.leaves(mask)):
      raise ValueError(
          "per_step_norm=True and the network has no norm parameters (an array"
          " named 'scale'): use norm='batch' or 'group', or leave it out"
      )
    return jax.tree.map(
        lambda norm, p: jnp.stack([p] * self.inner_steps) if norm else p,
        mask,
        weights,
    )

  def _select_norms(self, weights: Params, i: jax.Array | int) -> Params:
    if not self.per_step_norm:
      return weights
    mask = parts.norms(weights)
    return jax.tree.map(lambda norm, p: p[i] if norm else p, mask, weights)
