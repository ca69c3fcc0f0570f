"""Infer membership from a released meta-model, by a threshold on its loss.

The attacker holds the released parameters and somebody's data, adapts to a few
of their examples, and says "took part in the training" where the loss on others
of them is small: the loss threshold of Yeom et al., "Privacy Risk in Machine
Learning: Analyzing the Connection to Overfitting" (2018), for tasks in place of
examples. Carlini et al., "Membership Inference Attacks From First Principles"
(2022), ask for the share of members that are found at small rates of false
alarms.

The numbers are of one model and one simple attack. A curve on the diagonal
(`Roc`) proves nothing, and does not bound epsilon from below as an audit does
(`bounds.lower_bound`). The bound that a guarantee sets,
`most_true_positives`, holds for the average over runs, members and
non-members; the curve of one run varies about it by chance.

The scores of members are computed from private training data without noise:
nothing protects results that are made of them.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from episodic_dp import errors
from episodic_dp import learners
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


def check(hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan) -> None:
  """Refuse plans whose tasks do not belong to one participant each.

  Raises:
    PlanError: tasks of this plan belong to no single participant, or
      participants share their examples.
  """
  episode = plan.episode
  if episode is None or episode.form != "unit":
    raise errors.PlanError(
        "membership of a participant needs tasks that each belong to one"
        " participant (an episode with form='unit'), and this plan has"
        f" {episode or 'no episode'}: attack a run whose config has them"
    )
  if hierarchy.copies:
    raise errors.PlanError(
        "the participants of this hierarchy share their examples (copies=True),"
        " so that a held-out one was partly trained on: attack a run whose"
        " participants have examples of their own"
    )


def participants(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> np.ndarray:
  """Number the primary units that fill a task whatever is drawn in them.

  A step may make no task of others, such as empty ones, so that they have no
  loss.

  Returns:
    int64[units], rising.
  """
  filled = np.ones(1, bool)
  for k in reversed(range(1, hierarchy.depth)):
    counts, stage = hierarchy.child_counts(k), plan.stages[k]
    wanted = int(counts.max())
    if isinstance(stage, plan_lib.FixedSize):
      wanted = stage.n
    enough = counts >= wanted
    if hierarchy.sizes is None:
      lacking = ~np.broadcast_to(filled, (hierarchy.num_units(k),))
      enough &= ~np.bincount(
          hierarchy.parents(k)[lacking], minlength=counts.size
      ).astype(bool)
    filled = enough
  return np.flatnonzero(np.broadcast_to(filled, (hierarchy.num_units(0),)))


def draw_tasks(
    dataset: dataset_lib.Dataset,
    plan: plan_lib.SamplingPlan,
    units: np.ndarray,
    *,
    tasks: int,
    seed: int,
) -> Tasks:
  """Draw tasks of some participants, inside each as training draws them.

  Args:
    dataset: with `hierarchy` and `rows`; members or non-members.
    plan: that of the training; its first stage, which draws participants, is
      not used.
    units: int[units], different primary units of the hierarchy, each of
      `participants`.
    tasks: of each participant.
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
    grouped, _ = sampling.task_indices(indices, mask, below, drawn)
    rows = np.asarray(grouped)
    # They come in random order: back to that of `units`.
    owner = np.searchsorted(ends, rows[:, 0, 0], side="right")
    found.append(leaves[rows[np.argsort(owner)]])
  rows = np.stack(found, axis=1)
  keys = jax.random.split(
      jax.random.fold_in(key, _LABELS), (len(units), tasks)
  )
  return Tasks(np.asarray(dataset.rows(jnp.asarray(rows))), keys)


def query_losses(
    learner: learners.Learner,
    params: Any,
    dataset: dataset_lib.Dataset,
    episode: plan_lib.Episode,
    tasks: Tasks,
    *,
    chunk: int = 16,
) -> np.ndarray:
  """Return the loss of every query example, after adapting.

  Args:
    learner: offers `predict(params, support, query_images) -> logits`;
      hashable.
    params: the released meta-parameters.
    dataset: `images`, and `targets` for regression.
    episode: way, shot and query.
    tasks: of `draw_tasks` on this data set.
    chunk: tasks computed at once.

  Returns:
    float64[units, tasks, way * query]: cross entropies, in nats; or squared
    errors. Queries stand class by class, as in `tasks.rows[..., shot:]`.
  """
  targets = dataset.targets
  lead = tasks.rows.shape[:2]
  rows = tasks.rows.reshape(-1, *tasks.rows.shape[2:])
  keys = tasks.keys.reshape(-1)
  losses = []
  size = min(chunk, len(rows))
  for start in range(0, len(rows), size):
    # The last chunk begins earlier in place of being shorter: one compilation.
    first = min(start, len(rows) - size)
    part = slice(first, first + size)
    images = jnp.asarray(dataset.images[rows[part]])
    found = _chunk_losses(
        learner, params, keys[part], images, episode, targets
    )
    losses.append(np.asarray(found)[start - first :])
  result = np.concatenate(losses).astype(np.float64).reshape(*lead, -1)
  return result if targets else np.logaddexp(0, -result)


@functools.partial(jax.jit, static_argnums=(0, 4, 5))
def _chunk_losses(learner, params, keys, images, episode, targets):
  """Return the losses of one chunk of tasks, [tasks, way * query].

  These are squared errors, or the log odds of the right class in place of its
  cross entropy log(1 + exp(-odds)), which float32 rounds to 0 for large odds:
  the examples that look most like members.
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
  """Return minus the mean query loss of each unit, float64[units]."""
  return -losses.mean(axis=(1, 2))


def example_scores(
    losses: np.ndarray, tasks: Tasks, shot: int
) -> tuple[np.ndarray, np.ndarray]:
  """Return minus the mean loss of each example as a query.

  Args:
    losses: of `query_losses`.
    tasks: these.
    shot: support examples of a class; the others are queries.

  Returns:
    (rows int32[examples] of the images that were a query, each once; scores
    float64[examples]).
  """
  rows, inverse = np.unique(tasks.rows[..., shot:], return_inverse=True)
  total = np.bincount(inverse.reshape(-1), weights=losses.reshape(-1))
  return rows, -total / np.bincount(inverse.reshape(-1))


def _subtree(
    hierarchy: plan_lib.Hierarchy, units: np.ndarray
) -> tuple[plan_lib.Hierarchy, np.ndarray]:
  """Return the hierarchy of some primary units, and its leaves' rows."""
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
  """Count the leaves of each primary unit of a ragged hierarchy."""
  assert hierarchy.offsets is not None
  ends = np.arange(hierarchy.num_units(0) + 1)
  for offsets in hierarchy.offsets[1:]:
    ends = offsets[ends]
  return np.diff(ends)


# Curves of an attack --------------------------------------------------------


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
  """Scores of members and non-members, and the area under their curve.

  Attributes:
    members: float64[members], ascending scores.
    non_members: float64[non-members], ascending scores.
    auc: the probability that a member scores above a non-member (ties half).
    auc_interval: of that probability, 95 %.
  """

  members: np.ndarray
  non_members: np.ndarray
  auc: float
  auc_interval: Interval

  def at(self, fpr: float, *, confidence: float = 0.95) -> Point:
    """Return the threshold that finds most members at a rate of false alarms.

    The interval of the rate of true positives is exact at this threshold (given
    the non-members, that was fixed before members were looked at). That of
    false ones is conservative: the threshold is one of their order statistics.

    Args:
      fpr: the most false positives, as a share of the non-members. Below one in
        all of them the threshold is the largest of their scores.
      confidence: of each interval.
    """
    n = self.non_members.size
    # A hair above, since 0.29 * 100 is less than 29 in floating point.
    allowed = math.floor(fpr * n * (1 + 1e-9))
    threshold = -math.inf
    if allowed < n:
      threshold = float(self.non_members[n - 1 - allowed])
    hits = int(np.sum(self.members > threshold))
    alarms = int(np.sum(self.non_members > threshold))
    return Point(
        threshold=threshold,
        fpr=alarms / n,
        fpr_interval=clopper_pearson(alarms, n, confidence),
        tpr=hits / self.members.size,
        tpr_interval=clopper_pearson(hits, self.members.size, confidence),
    )


def roc(members: np.ndarray, non_members: np.ndarray) -> Roc:
  """Make the curve of an attack that calls large scores members.

  Args:
    members: float[members], their scores.
    non_members: float[non-members], theirs.
  """
  members, non_members = (
      np.sort(np.asarray(scores, np.float64).reshape(-1))
      for scores in (members, non_members)
  )
  m, n = members.size, non_members.size
  if np.isnan(members).any() or np.isnan(non_members).any():
    raise ValueError("scores are NaN: attack a model whose losses are finite")
  # The share of the others that each one beats: DeLong, DeLong and
  # Clarke-Pearson, "Comparing the Areas under Two or More Correlated ROC
  # Curves" (1988).
  beaten = _below(members, non_members)
  auc = float(beaten.mean())
  beating = _below(non_members, members)
  spread = math.sqrt(_variance(beaten) / m + _variance(beating) / n)
  return Roc(
      members=members,
      non_members=non_members,
      auc=auc,
      auc_interval=Interval(
          max(auc - 1.96 * spread, 0.0), min(auc + 1.96 * spread, 1.0)
      ),
  )


def most_true_positives(
    fpr: np.ndarray, epsilon: float, delta: float
) -> np.ndarray:
  """Return the largest rate of true positives that (epsilon, delta) allows.

  For every test of "with t" against "without t", TPR <= e^epsilon FPR + delta
  and 1 - FPR <= e^epsilon (1 - TPR) + delta: Kairouz, Oh and Viswanath, "The
  Composition Theorem for Differential Privacy" (2015), Theorem 2.1.

  Args:
    fpr: rates of false positives, any shape.
    epsilon: at least 0; infinity for no guarantee.
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
  """Return the exact interval of a probability (Clopper, Pearson, 1934)."""
  tail = (1 - confidence) / 2
  low, high = 0.0, 1.0
  if successes:
    low = float(stats.beta.ppf(tail, successes, trials - successes + 1))
  if successes < trials:
    high = float(stats.beta.isf(tail, successes + 1, trials - successes))
  return Interval(low, high)


def _below(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
  """Return the share of the (ascending) others below each score, ties half."""
  left = np.searchsorted(others, scores, side="left")
  right = np.searchsorted(others, scores, side="right")
  return (left + right) / (2 * others.size)


def _variance(values: np.ndarray) -> float:
  """Return the sample variance; infinite for one value."""
  return float(values.var(ddof=1)) if values.size > 1 else math.inf
