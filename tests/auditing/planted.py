"""Small audits, of the real step and of the same step with a mistake in it.

A learner whose gradients the data choose makes the worst case: a record that
pulls one way and others that pull the other way, or not at all.
"""

from collections.abc import Callable
import math
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import accounting
from episodic_dp import auditing
from episodic_dp import data
from episodic_dp import plan
from episodic_dp import private
from episodic_dp.auditing import attack
from episodic_dp.auditing import canaries
from episodic_dp.private import clipping
from episodic_dp.private import keys
from episodic_dp.private import noise
from episodic_dp.private import step as step_lib
from tests import fake_learner
from tests import plans

DELTA = 0.01
OPTIMIZER = attack.with_mean(optax.sgd(0.0))


def mean_of_queries(task):
  """The gradient that a task's query images are."""
  return task.query.images.mean((0, 1, 2))


class Chosen(fake_learner.FakeLearner):
  """Learns nothing: the gradient of a task is `direction(task)`."""

  def __init__(
      self,
      size: int = 1,
      way: int = 1,
      direction: Callable[[Any], jax.Array] = mean_of_queries,
  ):
    self.size, self.way, self.direction = size, way, direction

  def init(self, key):
    del key
    return jnp.zeros(self.size)

  def predict(self, params, support, query_images):
    del params, support
    return jnp.zeros((query_images.shape[0], self.way))

  def loss(self, params, episode):
    return jnp.vdot(params, lax.stop_gradient(self.direction(episode)))


class Audit(NamedTuple):
  """Neighbours, and how they are trained.

  Attributes:
    with_record: the data set with the record.
    without_record: the same without it.
    learner: see `private.make_meta_step`.
    plan: the plan of the claim.
    mechanism: the mechanism of the claim.
    level: of the record.
    steps: of a run.
  """

  with_record: data.ArrayDataset
  without_record: data.ArrayDataset
  learner: Any
  plan: plan.SamplingPlan
  mechanism: plan.Mechanism
  level: str
  steps: int

  def release(self, side: data.ArrayDataset) -> plan.Release:
    """Return how a side is sampled, and what its steps release."""
    return plan.Release(side.hierarchy, self.plan, self.mechanism)

  def claim(self) -> float:
    """Return the stated epsilon of the record, at DELTA."""
    return accounting.guarantee(
        self.release(self.with_record),
        steps=self.steps, delta=DELTA, level=self.level,
    ).epsilon

  def measure(
      self, score: Callable[[np.ndarray], np.ndarray], runs: int, seed: int = 0
  ) -> float:
    """The lower bound that many runs of both sides give, 95 % sure.

    Args:
      score: noisy sums in units of the clip norm, float64[runs, steps,
        coordinates] -> float[runs].
      runs: of each side.
      seed: of all of them.
    """
    scores = [
        score(self.sums(side, runs, 2 * seed + i))
        for i, side in enumerate((self.with_record, self.without_record))
    ]
    return auditing.measure_epsilon(*scores, delta=DELTA).epsilon

  def sums(self, side: data.ArrayDataset, runs: int, seed: int) -> np.ndarray:
    """Return the released sums, before the division by a public constant."""
    step = self.step(side)

    def initial(key):
      return private.init(key, self.learner, OPTIMIZER, self.mechanism)

    run = attack.releases(step, initial, steps=self.steps)
    released = run(jax.random.split(jax.random.key(seed), runs))
    # The sizes, and so the constant, are public and differ between the sides.
    count = step_lib.expected_clip_units(self.release(side))
    return released.means.astype(np.float64) * count / self.mechanism.clip_norm

  def step(self, side: data.ArrayDataset, **compute: Any):
    """Compile the real step again, with the mistake planted before."""
    return private.make_meta_step(
        self.learner, OPTIMIZER, side, self.release(side),
        compute=private.Compute(microbatch_size=1, **compute),
    )


def participants(gradients: Any) -> data.ArrayDataset:
  """Participants with two equal images each, which are their gradient.

  Args:
    gradients: float[participants, coordinates].
  """
  return canaries.canary_dataset(
      np.repeat(gradients, 2, axis=0),
      plans.tree("participant image", len(gradients), 2),
  )


def participants_plan(stage: plan.Stage) -> plan.SamplingPlan:
  """Participants by `stage`; each is one task, of both images."""
  return plans.sampling(stage, 2, way=1, shot=1, query=1)


def of_participants(
    gradients: Any, stage: plan.Stage, *, steps: int, **mechanism: Any
) -> Audit:
  """The first participant is the record; every task is clipped to norm 1."""
  gradients = np.asarray(gradients, np.float32)
  return Audit(
      participants(gradients),
      participants(gradients[1:]),
      Chosen(gradients.shape[1]),
      participants_plan(stage),
      plan.Mechanism(clip_unit="participant", **mechanism),
      "participant",
      steps,
  )


def shift_score(
    distance: float, rate: float, z: float
) -> Callable[[np.ndarray], np.ndarray]:
  """The likelihood ratio of steps that are shifted at times.

  Args:
    distance: by how many clip norms the first coordinate is, from 0.
    rate: how often.
    z: its standard deviation in clip norms.
  """

  def score(sums):
    x = sums[..., 0] / z
    d = distance / z
    log_ratio = np.logaddexp(
        np.log1p(-rate) if rate < 1 else -np.inf,
        np.log(rate) + d * x - d**2 / 2,
    )
    return log_ratio.sum(axis=1)

  return score


# Mistakes to plant in the real step -------------------------------------------


def less_noise(share: float) -> Callable[[Any], None]:
  """A planter of noise of a share of its deviation."""
  add_noise = noise.add_noise

  def plant(patch):
    patch.setattr(
        noise, "add_noise",
        lambda key, total, stddev, **options: add_noise(
            key, total, share * jnp.float32(stddev), **options
        ),
    )

  return plant


def other_norm(factor: float) -> Callable[[Any], None]:
  """A planter of clipping to a multiple of the clip norm."""
  clip = clipping.clip

  def plant(patch):
    patch.setattr(
        clipping, "clip",
        lambda gradient, norm, by: clip(gradient, factor * norm, by),
    )

  return plant


def repeated_key(patch: Any) -> None:
  """Plant one noise for all steps of a run."""
  patch.setattr(
      keys, "step_key",
      lambda key, purpose, step: jax.random.fold_in(key, purpose),
  )


MISTAKES = {
    "half the noise": less_noise(0.5),
    "0.85 of the noise": less_noise(0.85),
    "no clipping": other_norm(math.inf),
    "twice the clip norm": other_norm(2.0),
    "a repeated key": repeated_key,
}
