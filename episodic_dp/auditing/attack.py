"""Make many small private runs of both neighbours, and score every run.

The runs are real: each is `private.make_meta_step`, step by step, with a
separate key. `vmap` over the keys only makes thousands of them fast.

Formal statement
----------------
A score is a function of the releases of a run and of constants that
differential privacy lets an attacker know: both data sets, the plan, the
mechanism, and the public sizes of the scored side. It is therefore
post-processing of the released vectors. A score need not be exact: a wrong law
of the outputs makes a weaker attack, never a bound that is too large.

For the canaries of `canaries.worst_case` the sum of a step is one of a few
numbers m_o on a line, each with some probability, plus noise. In standard
deviations of the noise it has the distribution P = sum_o w_o N(m_o, 1) with the
record and Q = sum_o v_o N(m_o, 1) without it. Separate runs, almost without
noise, show the numbers and their probabilities. Steps are sampled
independently, so the best test of a run (Neyman and Pearson) uses the sum over
the steps of

    log sum_o w_o exp(m_o x - m_o^2 / 2) - log sum_o v_o exp(m_o x - m_o^2 / 2).

In a pass of `RandomAllocation` one of the steps holds the record. Then each
logarithm is of a sum over the steps of the pass, and the law is that of the
step that samples the record's primary unit.
"""

from collections.abc import Callable, Iterable, Iterator
import dataclasses
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import optax
import scipy

from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.auditing import canaries
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.private import step as step_lib

_AT_ONCE = 1024  # Runs that share the device's memory.
_COUNTED = 2**16  # Steps whose sums are counted for the law, at least.
_FEWEST = 64  # Fewest runs that they are enough for.
_SEED = 1_000_000  # Offset of the seeds of their keys.
_LITTLE = 1e-6  # Their noise, as a share of the mechanism's.


class Scored(NamedTuple):
  """Runs of one side.

  Attributes:
    scores: float64[runs, steps]; column t is the score of the first t + 1
      steps.
    totals: float64[runs, 2], the total of all sums of a run, and that of their
      squares.
  """

  scores: np.ndarray
  totals: np.ndarray


class Scores(NamedTuple):
  """Runs of both neighbours.

  Attributes:
    with_record: runs with the record.
    without_record: runs without it.
  """

  with_record: Scored
  without_record: Scored


class Law(NamedTuple):
  """The distribution of the sum of a step, before noise.

  Attributes:
    sums: float64[outcomes], in standard deviations of the noise.
    present: float64[outcomes], probabilities with the record.
    absent: float64[outcomes], probabilities without it.
    pass_steps: the number of steps of a pass, only one of which follows the
      law; 1 if all steps do.
    counted: the number of steps in which each set of probabilities was counted.
  """

  sums: np.ndarray
  present: np.ndarray
  absent: np.ndarray
  pass_steps: int = 1
  counted: int = _COUNTED


def many_runs(
    canary: canaries.Canary,
    *,
    runs: int,
    steps: int,
    seed: int = 0,
    law: Law | None = None,
    progress: Callable[[int], None] | None = None,
) -> Scores:
  """Score independent runs with the record, and as many without it.

  Args:
    canary: see `canaries.worst_case`.
    runs: number of runs with the record, and of runs without it.
    steps: number of steps of each run.
    seed: seed of the runs' secret keys, which all differ.
    law: from `count_law`; None to count it.
    progress: called with the number of runs that have finished.

  Returns:
    `Scores`, in which a high score suggests that the record took part.
  """
  law = law or count_law(canary, steps=steps, seed=seed)
  size = min(_AT_ONCE, runs)
  # The last batch is filled with runs that are discarded, so that one compiled
  # program serves all batches.
  keys = jax.random.split(jax.random.key(seed), (2, -(-runs // size), size))
  found = []
  for dataset, batches in zip((canary.present, canary.absent), keys):
    made = map(_sums(canary, dataset, canary.release, steps), batches)
    found.append(_score(made, law, runs, progress))
  return Scores(*found)


def count_law(
    canary: canaries.Canary, *, steps: int = 1, seed: int = 0
) -> Law:
  """Count the sums of single steps, almost without noise.

  Args:
    canary: see `canaries.worst_case`.
    steps: number of steps of a run; longer runs have more steps counted.
    seed: seed of the counted steps' keys.
  """
  plan, mechanism = canary.release.plan, canary.release.mechanism
  pass_steps = plan.pass_steps or 1
  if plan.pass_steps is not None:
    stages = (plan_lib.All(), *plan.stages[1:])
    plan = dataclasses.replace(plan, stages=stages)
  less: dict[str, Any] = {
      "noise_multiplier": _LITTLE * mechanism.noise_multiplier
  }
  if mechanism.count_noise is not None:
    less["count_noise"] = _LITTLE * mechanism.count_noise
  release = canary.release.replace(
      plan=plan, mechanism=dataclasses.replace(mechanism, **less)
  )
  batches = -(-_FEWEST * steps // pass_steps // _COUNTED)
  keys = jax.random.split(
      jax.random.key(_SEED + seed), (2, batches, _COUNTED)
  )
  sums: list[np.ndarray] = []
  for dataset, parts in zip((canary.present, canary.absent), keys):
    sums += map(_sums(canary, dataset, release, 1), parts)
  places, place = np.unique(
      np.round(_LITTLE * np.concatenate(sums), 3), return_inverse=True
  )
  counted = batches * _COUNTED
  present, absent = (
      np.bincount(part, minlength=places.size) / counted
      for part in place.reshape(2, counted)
  )
  return Law(places, present, absent, pass_steps, counted)


def simulate(
    law: Law, *, runs: int | None = None, steps: int, seed: int = 0
) -> Scores:
  """Score simulated runs of the law.

  Args:
    law: the law of a step.
    runs: number of runs of each side, to choose a threshold before real runs.
      None makes as many as there are counted steps for, each in one run at
      most. Then the totals have exactly the distribution of real runs whose
      steps are independent and have the noise of the mechanism, although the
      law itself is only counted.
    steps: number of steps of each run.
    seed: seed of all draws.
  """
  rng = np.random.default_rng(seed)
  passes = -(-steps // law.pass_steps)
  found = []
  for weights in (law.present, law.absent):
    if runs is None:
      counts = np.rint(weights * law.counted).astype(int)
      whole = rng.permutation(np.repeat(law.sums, counts))
      whole = whole[: law.counted // passes * passes]
    else:
      whole = rng.choice(law.sums, runs * passes, p=weights)
    outcomes = whole.reshape(-1, passes)
    noised = _noised(outcomes, law, steps, rng)
    found.append(_score(noised, law, len(outcomes)))
  return Scores(*found)


def _noised(
    outcomes: np.ndarray, law: Law, steps: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
  """Yield the sums of runs with one outcome a pass, float64[some, steps]."""
  for start in range(0, len(outcomes), _AT_ONCE):
    some = outcomes[start : start + _AT_ONCE, :, None]
    sums = np.zeros((*some.shape[:2], law.pass_steps))
    when = rng.integers(law.pass_steps, size=some.shape)
    np.put_along_axis(sums, when, some, axis=2)
    sums += rng.standard_normal(sums.shape)
    yield sums.reshape(len(some), -1)[:, :steps]


def _score(
    batches: Iterable[np.ndarray],
    law: Law,
    runs: int,
    progress: Callable[[int], None] | None = None,
) -> Scored:
  """Score the first runs of batches of sums, float64[batch, steps]."""
  scores, totals, left = [], [], runs
  for sums in batches:
    sums = sums[:left]
    scores.append(log_ratio(sums, law))
    totals.append(np.stack([sums.sum(1), np.square(sums).sum(1)], axis=1))
    left -= len(sums)
    if progress is not None:
      progress(len(sums))
  return Scored(np.concatenate(scores), np.concatenate(totals))


def log_ratio(sums: np.ndarray, law: Law) -> np.ndarray:
  """Return cumulative scores, which change at the end of each pass.

  Args:
    sums: float64[runs, steps], in standard deviations of the noise.
    law: the law of a step.

  Returns:
    float64[runs, steps].
  """
  (runs, steps), pass_steps = sums.shape, law.pass_steps
  exponents = sums[..., None] * law.sums - law.sums**2 / 2
  whole = steps // pass_steps
  likelihoods = [
      scipy.special.logsumexp(
          exponents[:, : whole * pass_steps].reshape(runs, whole, -1),
          axis=-1, b=np.tile(weights, pass_steps),
      )
      for weights in (law.present, law.absent)
  ]
  scores = np.cumsum(likelihoods[0] - likelihoods[1], axis=1)
  before = np.pad(scores, [(0, 0), (1, 0)])  # Nothing before the first pass.
  return before[:, np.arange(1, steps + 1) // pass_steps]


def _sums(
    canary: canaries.Canary,
    dataset: dataset_lib.Dataset,
    release: plan_lib.Release,
    steps: int,
) -> Callable[[jax.Array], np.ndarray]:
  """Make a function from keys to the noised sums of runs on a data set."""
  optimizer = with_mean(optax.sgd(0.0))
  release = release.replace(hierarchy=dataset.hierarchy)
  step = private.make_meta_step(
      canary.learner, optimizer, dataset, release,
      compute=private.Compute(microbatch_size=1, mesh=None),
  )

  def initial(key):
    return private.init(key, canary.learner, optimizer, release.mechanism)

  released = releases(step, initial, steps=steps)
  count = step_lib.expected_clip_units(release)
  return lambda keys: on_line(released(keys), release.mechanism, count)


class Releases(NamedTuple):
  """The releases of runs, in order.

  Attributes:
    means: float32[runs, steps, coordinates], the noised means of the clipped
      gradients: the arrays of the parameters in the order of `jax.tree.leaves`,
      flattened and joined.
    clip_norms: float32[runs, steps + 1, groups], the clip norms before each
      step and after the last one. With a private quantile they reveal the
      noised counts.
  """

  means: np.ndarray
  clip_norms: np.ndarray


def on_line(
    released: Releases, mechanism: plan_lib.Mechanism, count: float
) -> np.ndarray:
  """Return sums of one coordinate in units of their noise.

  With clipping="private_quantile" the noised count is computed from two clip
  norms, and added along the direction (gradient, count) in which a clip unit of
  norm C moves the pair. This is the projection on a unit vector, of noise 1.

  Args:
    released: the releases of one coordinate.
    mechanism: mechanism of the releases.
    count: the public number that the sums are divided by
      (`step.expected_clip_units`).

  Returns:
    float64[runs, steps].
  """
  noise = mechanism.gradient_noise_multiplier
  means, clip_norms = (a[..., 0].astype(np.float64) for a in released)
  gradient = means * count / clip_norms[:, :-1] / noise
  if mechanism.clipping != "private_quantile":
    return gradient
  sigma, quantile = mechanism.count_noise, mechanism.clip_quantile
  assert mechanism.clip_rate and sigma and quantile  # Checked by the mechanism.
  moved = np.diff(np.log(clip_norms))
  share = quantile - moved / mechanism.clip_rate
  counted = (share - 0.5) * count / sigma
  z = mechanism.noise_multiplier
  return z * (gradient / noise - counted / (2 * sigma))


def with_mean(
    optimizer: optax.GradientTransformation,
) -> optax.GradientTransformation:
  """Make the optimizer's state begin with its last input, the released mean.

  An optimizer receives the released mean and nothing else of a step. The
  difference of two vectors of parameters would lose bits to rounding.
  """

  def init(params):
    return jax.tree.map(jnp.zeros_like, params)

  def update(mean, state, params=None):
    return mean, mean

  return optax.chain(optax.GradientTransformation(init, update), optimizer)


def releases(
    step: Callable[[private.State], tuple[private.State, Any]],
    initial: Callable[[jax.Array], private.State],
    *,
    steps: int,
) -> Callable[[jax.Array], Releases]:
  """Make a function from the keys of runs to the release of every step.

  Args:
    step: from `private.make_meta_step` with data on the device, an optimizer
      `with_mean`, and `Compute(mesh=None)`: many runs share the device.
    initial: key -> state, by `private.init` with the same optimizer.
    steps: number of steps of each run, at least 1.
  """

  def one_run(key):
    def one_step(state, _):
      bounds = state.bounds
      state, _ = step(state)
      mean = jax.tree.leaves(state.opt_state[0])
      return state, (jnp.concatenate([a.ravel() for a in mean]), bounds)

    state, (means, bounds) = lax.scan(
        one_step, initial(key), None, length=steps
    )
    return means, jnp.concatenate([bounds, state.bounds[None]])

  batch = jax.jit(jax.vmap(one_run))
  return lambda keys: Releases(*jax.device_get(batch(keys)))
