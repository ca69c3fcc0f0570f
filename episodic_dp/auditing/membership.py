"""Membership inference on a released meta-model, by a threshold on its loss.

The attacker holds the released parameters and somebody's data, adapts to a few
of their examples, and says "took part in the training" where the loss on others
of them is small: the loss threshold of Yeom et al., "Privacy Risk in Machine
Learning: Analyzing the Connection to Overfitting" (2018), for tasks in place of
examples. What is reported is what Carlini et al., "Membership Inference Attacks
From First Principles" (2022), ask for: the share of members that are found at
small rates of false alarms.

What the numbers mean
---------------------
They are of one model, and of one simple attack: a curve on the diagonal proves
nothing, and does not bound epsilon from below as an audit does (`lower_bound`).
The bound that a guarantee sets, `most_true_positives`, holds for the average
over runs, members and non-members; a curve of one run lies about it by chance.

The scores of members are computed from private training data and are not
noised: nothing protects what is made of them here.
"""

from collections.abc import Callable, Iterator
import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.data import dataset as dataset_lib

_SAMPLING, _LABELS = range(2)


class Tasks(NamedTuple):
  """Tasks of chosen primary units ("participants").

  Attributes:
    rows: int32[units, tasks, way, shot + query], rows of the images.
    keys: typed keys [units, tasks], of the labels' order.
  """

  rows: np.ndarray
  keys: jax.Array


class Interval(NamedTuple):
  """A confidence interval of a probability."""

  low: float
  high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
  """One threshold of an attack.

  Attributes:
    threshold: scores above it are called members.
    fpr: share of the non-members above it.
    fpr_interval: of their probability.
    tpr: share of the members above it.
    tpr_interval: of their probability, at this threshold.
  """

  threshold: float
  fpr: float
  fpr_interval: Interval
  tpr: float
  tpr_interval: Interval


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Roc:
  """How members are told from non-members at every threshold.

  Attributes:
    inside: float64[members], ascending scores.
    outside: float64[non-members], ascending scores.
    fpr: float64[thresholds], from 0 to 1.
    tpr: float64[thresholds], likewise.
    auc: the probability that a member scores above a non-member (ties half).
    auc_interval: of that probability, 95 %.
  """

  inside: np.ndarray
  outside: np.ndarray
  fpr: np.ndarray
  tpr: np.ndarray
  auc: float
  auc_interval: Interval

  def at(self, fpr: float, *, confidence: float = 0.95) -> Point:
    """The threshold that calls the most non-members inside within a rate.

    The interval of the rate of true positives is exact at this threshold (given
    the non-members, that was fixed before members were looked at). That of
    false ones is conservative: the threshold is one of their order statistics.

    Args:
      fpr: the most false positives, as a share of the non-members. Below one in
        all of them the threshold is the largest of their scores.
      confidence: of each interval.

    Raises:
      ValueError: a rate outside [0, 1].
    """
    if not 0 <= fpr <= 1:
      raise ValueError(f"fpr {fpr} must lie between 0 and 1")
    n = self.outside.size
    # A hair above, since 0.29 * 100 is less than 29 in floating point.
    allowed = math.floor(fpr * n * (1 + 1e-9))
    threshold = -math.inf
    if allowed < n:
      threshold = float(self.outside[n - 1 - allowed])
    hits = int(np.sum(self.inside > threshold))
    alarms = int(np.sum(self.outside > threshold))
    return Point(
        threshold=threshold,
        fpr=alarms / n,
        fpr_interval=clopper_pearson(alarms, n, confidence),
        tpr=hits / self.inside.size,
        tpr_interval=clopper_pearson(hits, self.inside.size, confidence),
    )


def check(hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan) -> None:
  """Refuses plans whose tasks are nobody's.

  Raises:
    PlanError: tasks of this plan belong to no single participant, or
      participants share their examples.
  """
  episode = plan.episode
  if episode is None or episode.form != "unit":
    raise plan_lib.PlanError(
        "membership of a participant needs tasks that each belong to one"
        " participant (an episode with form='unit'), and this plan has"
        f" {episode or 'no episode'}: attack a run whose config has them"
    )
  if hierarchy.copies:
    raise plan_lib.PlanError(
        "the participants of this hierarchy share their examples (copies=True),"
        " so that a held-out one was partly trained on: attack a run whose"
        " participants have examples of their own"
    )


def draw_tasks(
    dataset: dataset_lib.Dataset,
    plan: plan_lib.SamplingPlan,
    units: np.ndarray,
    *,
    tasks: int,
    seed: int,
) -> Tasks:
  """Tasks of some participants, drawn inside each as training draws them.

  Args:
    dataset: with `hierarchy` and `rows`; members or non-members.
    plan: that of the training; its first stage, which draws participants, is
      not used.
    units: int[units], different primary units of the hierarchy.
    tasks: how many of each.
    seed: public.

  Raises:
    PlanError: see `check`.
  """
  hierarchy = dataset.hierarchy
  check(hierarchy, plan)
  below, leaves = _subtree(hierarchy, units)
  ends = np.cumsum(_leaf_counts(below))
  drawn = dataclasses.replace(
      plan, stages=(plan_lib.All(), *plan.stages[1:])
  )
  key, found = jax.random.key(seed), []
  for i in range(tasks):
    indices, mask = sampling.sample(
        jax.random.fold_in(key, _SAMPLING), below, drawn, step=i
    )
    rows = np.asarray(sampling.task_indices(indices, mask, drawn)[0])
    # They come in random order: back to that of `units`.
    owner = np.searchsorted(ends, rows[:, 0, 0], side="right")
    found.append(leaves[rows[np.argsort(owner)]])
  rows = np.stack(found, axis=1)
  keys = jax.random.split(
      jax.random.fold_in(key, _LABELS), (len(units), tasks)
  )
  return Tasks(np.asarray(dataset.rows(jnp.asarray(rows))), keys)


def query_losses(
    learner: Any,
    params: Any,
    dataset: dataset_lib.Dataset,
    episode: plan_lib.Episode,
    tasks: Tasks,
    *,
    chunk: int = 16,
    progress: Callable[[int], None] = lambda done: None,
) -> np.ndarray:
  """The loss of every query example, after adapting to the support set.

  Args:
    learner: offers `predict(params, support, query_images) -> logits`;
      hashable.
    params: the released meta-parameters.
    dataset: `images`, and `targets` for regression.
    episode: way, shot and query.
    tasks: of `draw_tasks` on this data set.
    chunk: tasks computed at once.
    progress: told how many tasks were done, chunk by chunk.

  Returns:
    float64[units, tasks, way * query]: cross entropies, in nats; or squared
    errors. Queries stand class by class, as in `tasks.rows[..., shot:]`.
  """
  targets = dataset.targets
  lead = tasks.rows.shape[:2]
  rows = tasks.rows.reshape(-1, *tasks.rows.shape[2:])
  keys = tasks.keys.reshape(-1)
  losses = []
  for part, done in _chunks(len(rows), min(chunk, len(rows))):
    images = jnp.asarray(dataset.images[rows[part]])
    chunk_of = _of_chunk(learner, params, keys[part], images, episode, targets)
    losses.append(np.asarray(chunk_of)[-done:])
    progress(done)
  found = np.concatenate(losses).astype(np.float64).reshape(*lead, -1)
  return found if targets else np.logaddexp(0, -found)


@functools.partial(jax.jit, static_argnums=(0, 4, 5))
def _of_chunk(learner, params, keys, images, episode, targets):
  """Of tasks that are computed at once, [tasks, way * query].

  Squared errors; or the log odds of the right class, in place of its cross
  entropy log(1 + exp(-odds)), which float32 rounds to 0 where they are large:
  those are the very examples that are taken for members first.
  """

  def one(key, images):
    task = sampling.make_episode(key, images, episode, targets=targets)
    outputs = learner.predict(params, task.support, task.query.images)
    if targets:
      return jnp.square(outputs - task.query.labels).mean(-1)
    right = jax.nn.one_hot(task.query.labels, episode.way, dtype=bool)
    others = jax.nn.logsumexp(jnp.where(right, -jnp.inf, outputs), axis=-1)
    return jnp.where(right, outputs, 0).sum(-1) - others

  return jax.vmap(one)(keys, images)


def participant_scores(losses: np.ndarray) -> np.ndarray:
  """float64[units]: minus the mean query loss of each, of `query_losses`."""
  return -losses.mean(axis=(1, 2))


def example_scores(
    losses: np.ndarray, tasks: Tasks, shot: int
) -> tuple[np.ndarray, np.ndarray]:
  """Minus the mean loss of each example over the times that it was a query.

  Args:
    losses: of `query_losses`.
    tasks: these.
    shot: support examples of a class; the others are queries.

  Returns:
    (rows int32[examples], those of the images that were a query at all, each
    once; scores float64[examples]).
  """
  rows, inverse = np.unique(tasks.rows[..., shot:], return_inverse=True)
  total = np.bincount(inverse.reshape(-1), weights=losses.reshape(-1))
  return rows, -total / np.bincount(inverse.reshape(-1))


def roc(inside: np.ndarray, outside: np.ndarray) -> Roc:
  """The curve of an attack that calls large scores members.

  Args:
    inside: float[members], their scores.
    outside: float[non-members].

  Raises:
    ValueError: no scores, or NaN among them.
  """
  inside, outside = (
      np.sort(np.asarray(scores, np.float64).reshape(-1))
      for scores in (inside, outside)
  )
  for name, scores in (("inside", inside), ("outside", outside)):
    if not scores.size or np.isnan(scores).any():
      raise ValueError(
          f"{np.isnan(scores).sum()} of {scores.size} scores {name} are NaN:"
          " give one number or more, such as losses of a model that is finite"
      )
  m, n = inside.size, outside.size
  # Equal scores fall together, whoever has them.
  thresholds = np.unique(np.concatenate([inside, outside]))[::-1]
  tpr = 1 - np.searchsorted(inside, thresholds, side="left") / m
  fpr = 1 - np.searchsorted(outside, thresholds, side="left") / n
  # Which share of the others each one beats: DeLong, DeLong and Clarke-Pearson,
  # "Comparing the Areas under Two or More Correlated ROC Curves" (1988).
  beaten = _below(inside, outside)
  auc = float(beaten.mean())
  beating = _below(outside, inside)
  spread = math.sqrt(_variance(beaten) / m + _variance(beating) / n)
  return Roc(
      inside=inside,
      outside=outside,
      fpr=np.concatenate([[0.0], fpr]),
      tpr=np.concatenate([[0.0], tpr]),
      auc=auc,
      auc_interval=Interval(
          max(auc - 1.96 * spread, 0.0), min(auc + 1.96 * spread, 1.0)
      ),
  )


def most_true_positives(
    fpr: np.ndarray, epsilon: float, delta: float
) -> np.ndarray:
  """The largest rate of true positives that (epsilon, delta) allows.

  For every test of "with t" against "without t", TPR <= e^epsilon FPR + delta
  and 1 - FPR <= e^epsilon (1 - TPR) + delta: Kairouz, Oh and Viswanath, "The
  Composition Theorem for Differential Privacy" (2015), Theorem 2.1.

  Args:
    fpr: rates of false positives, any shape.
    epsilon: at least 0; infinity where nothing is guaranteed.
    delta: in [0, 1].
  """
  fpr = np.asarray(fpr, np.float64)
  if math.isinf(epsilon):
    return np.ones_like(fpr)
  rare = math.exp(epsilon) * fpr + delta
  usual = 1 - math.exp(-epsilon) * (1 - delta - fpr)
  return np.minimum(np.minimum(rare, usual), 1.0)


def clopper_pearson(
    successes: int, trials: int, confidence: float = 0.95
) -> Interval:
  """The exact two-sided interval of a probability (Clopper, Pearson, 1934)."""
  if not 0 <= successes <= trials or trials < 1:
    raise ValueError(f"{successes} successes of {trials} trials")
  tail = (1 - confidence) / 2
  low, high = 0.0, 1.0
  if successes:
    low = float(stats.beta.ppf(tail, successes, trials - successes + 1))
  if successes < trials:
    high = float(stats.beta.isf(tail, successes + 1, trials - successes))
  return Interval(low, high)


def _subtree(
    hierarchy: plan_lib.Hierarchy, units: np.ndarray
) -> tuple[plan_lib.Hierarchy, np.ndarray]:
  """The hierarchy of some primary units alone, and the rows of its leaves."""
  parents = np.asarray(units, np.int64)
  offsets = [np.asarray([0, parents.size], np.int64)]
  for level in range(1, hierarchy.depth):
    if hierarchy.offsets is None:
      assert hierarchy.sizes is not None
      counts = np.full(parents.size, hierarchy.sizes[level])
      first = parents * hierarchy.sizes[level]
    else:
      first = hierarchy.offsets[level][parents]
      counts = hierarchy.offsets[level][parents + 1] - first
    ends = np.cumsum(counts)
    offsets.append(np.concatenate([[0], ends]).astype(np.int64))
    within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    parents = np.repeat(first, counts) + within
  if hierarchy.leaf_rows is not None:
    parents = hierarchy.leaf_rows[parents]
  part = plan_lib.Hierarchy(levels=hierarchy.levels, offsets=tuple(offsets))
  return part, parents.astype(np.int32)


def _leaf_counts(hierarchy: plan_lib.Hierarchy) -> np.ndarray:
  """int64[primary units]: the leaves of each, in a ragged hierarchy."""
  assert hierarchy.offsets is not None
  ends = np.arange(hierarchy.num_units(0) + 1)
  for offsets in hierarchy.offsets[1:]:
    ends = offsets[ends]
  return np.diff(ends)


def _chunks(count: int, size: int) -> Iterator[tuple[slice, int]]:
  """Slices of one size that cover 0 .. count, and how many each adds.

  The last begins earlier in place of being shorter: one compilation.
  """
  for start in range(0, count, size):
    first = min(start, count - size)
    yield slice(first, first + size), first + size - start


def _below(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
  """For each score the share of the (ascending) others below it, ties half."""
  left = np.searchsorted(others, scores, side="left")
  right = np.searchsorted(others, scores, side="right")
  return (left + right) / (2 * others.size)


def _variance(values: np.ndarray) -> float:
  """The sample variance; infinite for one value."""
  return float(values.var(ddof=1)) if values.size > 1 else math.inf
