"""MAML, ANIL and Meta-SGD: learn the weights to adapt from by gradient steps.

A schedule of the multi-step loss depends only on the number of the outer step,
which is public. So its weights cost no privacy.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from episodic_dp import _validate
from episodic_dp import options
from episodic_dp.learners import learner
from episodic_dp.models import parts
from episodic_dp.sampling import episodes

_EPOCHS = 10  # Stages in which the weights move, as in the authors' code.


def annealed(
    inner_steps: int, outer_steps: int
) -> Callable[[jax.Array], jax.Array]:
  """Return the authors' schedule: first all inner steps, then only the last.

  In stage e = 0 .. 9, each a tenth of `outer_steps`, an earlier step has the
  weight (1 - e / 10) / S for S inner steps, and the last step the rest up to 1.
  After `outer_steps` only the last step counts.

  Args:
    inner_steps: S, at least 1.
    outer_steps: number of steps until the weights stay fixed, at least 1.

  Returns:
    outer step -> float32[inner_steps], with sum 1.
  """

  def weights(step: jax.Array) -> jax.Array:
    stage = _EPOCHS * jnp.minimum(step, outer_steps) // outer_steps
    early = (1 - stage / _EPOCHS) / inner_steps
    last = jnp.arange(inner_steps) == inner_steps - 1
    return jnp.where(last, 1 - (inner_steps - 1) * early, early)

  return weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class MAML(learner.StepLearner):
  """Model-agnostic meta-learning, with the parts of MAML++ as options.

  Finn, Abbeel and Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of
  Deep Networks" (ICML 2017), equation 1 and Algorithm 1; the first-order form
  is in section 5.2. The options are those of Antoniou, Edwards and Storkey,
  "How to train your MAML" (ICLR 2019), sections 4 and 5.

  The meta-parameters are the network's. With `per_step_norm` its norm
  parameters have a leading axis of inner steps. With `learned_rates` the tree
  is {"model": the network's parameters, "rates": the rates}.

  Attributes:
    model: the network.
    inner_steps: gradient steps on the support set, at least 1.
    inner_rate: their learning rate, positive; the initial value of learned
      rates.
    order: "second" differentiates through the inner steps; "first" treats the
      inner gradients as constants.
    task_loss: see `Learner`.
    learned_rates: whether to learn one inner rate for every array of parameters
      and inner step ("per-layer per-step learning rates").
    per_step_norm: whether to learn separate scales and biases of the norm
      layers for every inner step, and to exclude them from the inner loop.
      Those of step i serve its support pass and the query pass after it.
      Statistics are always those of the current batch; none are carried.
    loss_weights: weights of the query loss after each inner step ("multi-step
      loss"): `inner_steps` numbers of at least 0, or outer step -> such an
      array (`annealed`), which `at_step` resolves; None for the last step's
      loss only.
  """

  order: learner.Order = "second"
  learned_rates: bool = False
  per_step_norm: bool = False
  loss_weights: Any = None

  paper = "Finn et al., ICML 2017"
  adapted = "all weights, by gradient steps"

  def __post_init__(self) -> None:
    super().__post_init__()
    _validate.one_of("order", self.order, ("first", "second"))

  @classmethod
  def settings(cls, chosen: options.LearnerOptions, way: int) -> dict[str, Any]:
    """See `Learner`."""
    found = super().settings(chosen, way)
    if chosen.multi_step_loss:
      found["loss_weights"] = annealed(
          chosen.inner_steps, chosen.multi_step_loss
      )
    return found

  def init(self, key: jax.Array) -> learner.Params:
    """Return the initial parameters, and the rates where learned."""
    weights = self.model.init(key)
    if self.per_step_norm:
      weights = jax.tree.map(
          lambda norm, p: jnp.stack([p] * self.inner_steps) if norm else p,
          parts.norms(weights),
          weights,
      )
    if not self.learned_rates:
      return weights
    moving, _ = parts.split(weights, self._moves(weights))
    return {"model": weights, "rates": self._initial_rates(moving)}

  def adapt(
      self,
      params: learner.Params,
      support: episodes.Examples,
      *,
      inner_gradient: learner.InnerGradient = jax.grad,
  ) -> learner.Params:
    """Return the parameters after `inner_steps` steps; see `Learner`."""
    return self._descend(params, support, inner_gradient)[0]

  def loss(
      self, params: learner.Params, episode: episodes.EpisodeBatch
  ) -> jax.Array:
    """Compute the query loss after adapting to the support set.

    With `loss_weights` it is the weighted sum of the losses after each step.
    """
    if self.loss_weights is None:
      return super().loss(params, episode)
    weights = jnp.asarray(self.loss_weights)
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
    """Return the learner of one outer step, whose number is public."""
    if not callable(self.loss_weights):
      return self
    return dataclasses.replace(self, loss_weights=self.loss_weights(step))

  def _descend(self, params, support, inner_gradient, visit=None):
    """Return the adapted network, and `visit(network, i)` of each step."""
    weights = params
    rates: Callable[[jax.Array | int], learner.Params] | None = None
    if self.learned_rates:
      weights = params["model"]
      rates = functools.partial(self._rates_of_step, params["rates"])
    moving, still = parts.split(weights, self._moves(weights))

    def network(moving, i):
      return self._select_norms(parts.merge(moving, still), i)

    def inner_loss(moving, examples, i):
      return self.in_pass(i).adapted_loss(network(moving, i), examples)

    moving, values = self.descend(
        inner_gradient(inner_loss),
        moving,
        support,
        rates=rates,
        visit=visit and (lambda moving, i: visit(network(moving, i), i)),
    )
    return network(moving, self.inner_steps - 1), values

  # Overridden by ANIL and MetaSGD.

  def _moves(self, weights: learner.Params) -> parts.Mask:
    """Return the mask of the parameters that inner steps change."""
    return jax.tree.map(
        lambda norm: not (norm and self.per_step_norm), parts.norms(weights)
    )

  def _initial_rates(self, moving: learner.Params) -> learner.Params:
    """Return the rates to learn, one entry for each parameter that adapts."""
    return jax.tree.map(
        lambda p: jnp.full(self.inner_steps, self.inner_rate, p.dtype), moving
    )

  def _rates_of_step(
      self, rates: learner.Params, i: jax.Array | int
  ) -> learner.Params:
    return jax.tree.map(lambda r: r[i], rates)

  def _select_norms(
      self, weights: learner.Params, i: jax.Array | int
  ) -> learner.Params:
    if not self.per_step_norm:
      return weights
    mask = parts.norms(weights)
    return jax.tree.map(lambda norm, p: p[i] if norm else p, mask, weights)


@dataclasses.dataclass(frozen=True)
class ANIL(MAML):
  """MAML whose inner steps change the head only.

  Raghu, Raghu, Bengio and Vinyals, "Rapid Learning or Feature Reuse? Towards
  Understanding the Effectiveness of MAML" (ICLR 2020), section 4, equation 3
  ("almost no inner loop").

  The body is learned by the outer steps. A head that adapts alone needs larger
  inner steps than MAML, or more of them: every task numbers its classes
  differently, so the head starts at chance, and one short step leaves it there.

  The options of MAML++ apply to the head if they concern adapted parameters.

  Attributes:
    head: the name of the network's last layer, at the top of its parameters.
  """

  head: str = "head"

  paper = "Raghu et al., ICLR 2020"
  adapted = "the head, by gradient steps"

  def _moves(self, weights: learner.Params) -> parts.Mask:
    return jax.tree.map(
        lambda head, moves: head and moves,
        parts.head(weights, self.head),
        super()._moves(weights),
    )


@dataclasses.dataclass(frozen=True)
class MetaSGD(MAML):
  """MAML whose inner gradient is multiplied by a learned vector.

  Li, Zhou, Chen and Li, "Meta-SGD: Learning to Learn Quickly for Few-Shot
  Learning" (2017), equation 2 and Algorithm 1.

  The meta-parameters are {"model": the network's, "rates": arrays like the
  adapted ones}, twice as many as MAML's, so that noise of a given multiplier
  has a norm larger by the root of two. All rates start at `inner_rate` (the
  paper samples them from [0.005, 0.1]) and may become negative, as in the
  paper. With several inner steps the rates are the same in each; the paper has
  one.

  The attributes are those of `MAML`, with one rate for every parameter instead
  of one for every array and step.
  """

  inner_steps: int = 1
  learned_rates: bool = True

  paper = "Li et al., 2017"
  adapted = "all weights, by gradient steps with a learned rate each"

  @classmethod
  def settings(cls, chosen: options.LearnerOptions, way: int) -> dict[str, Any]:
    """See `Learner`."""
    return super().settings(chosen, way) | {"learned_rates": True}

  def _initial_rates(self, moving: learner.Params) -> learner.Params:
    return jax.tree.map(lambda p: jnp.full_like(p, self.inner_rate), moving)

  def _rates_of_step(
      self, rates: learner.Params, i: jax.Array | int
  ) -> learner.Params:
    return rates
