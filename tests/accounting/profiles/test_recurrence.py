"""Records that recur across the tasks of a step."""

import dataclasses
import functools
import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.accounting.profiles import unit_profile
from tests.oracles import exact
from tests.oracles import worst_case

BOTH = amplification.DIRECTIONS
LOSSES = np.asarray([0.0, 0.01, 0.1, 0.7, 2.0, 6.0])


def kind(places=3, place_rate=0.4, rate=0.3, distance=1.5, drawn_of=None):
  return recurrence.Recurrence(
      places=places,
      place_rate=place_rate,
      rate=rate,
      distance=distance,
      drawn_of=drawn_of,
  )


def at(unit, epsilon, direction):
  return float(unit.divergence(np.asarray([epsilon]), direction)[0])


# Values -----------------------------------------------------------------------


def test_revealed_average_and_not_the_marginal():
  """One task of five among fifty classes, one image of two, z = 1."""
  revealed = kind(places=1, place_rate=0.1, rate=0.5, distance=2.0)
  marginal = kind(places=1, place_rate=1.0, rate=0.05, distance=2.0)
  # The worst case: without the class's task the output is where it is with
  # the image, and the class without the image lies opposite.
  larger = (np.asarray([1.0, -1.0]), np.asarray([0.9 + 0.05, 0.05]))
  smaller = (np.asarray([1.0, -1.0]), np.asarray([0.9, 0.1]))
  truth = exact.hockey_stick(smaller, larger, math.exp(0.1), 1.0)
  assert truth == pytest.approx(0.0211, abs=5e-5)
  assert at(revealed, 0.1, "add") == pytest.approx(0.0290, abs=5e-5)
  assert at(marginal, 0.1, "add") < 1e-30 < truth


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 25.0])
def test_far_tail_in_high_precision(epsilon, direction):
  """One J, against 60 digits: relative precision far below 1e-16."""
  j, p, d = 5, 0.3, 0.7
  unit = kind(places=j, place_rate=1.0, rate=p, distance=d)
  with mpmath.workdps(60):
    weights = [
        mpmath.binomial(j, k) * mpmath.mpf(p)**k * (1 - mpmath.mpf(p))**(j - k)
        for k in range(j + 1)
    ]

    def log_ratio(x):
      return mpmath.log(sum(
          w * mpmath.exp(k * d * x - (k * d) ** 2 / mpmath.mpf(2))
          for k, w in enumerate(weights)
      ))

    sign = 1 if direction == "remove" else -1
    if direction == "add" and sign * log_ratio(mpmath.mpf(-200)) < epsilon:
      truth = mpmath.mpf(0)
    else:
      x = mpmath.findroot(
          lambda x: log_ratio(x) - sign * epsilon,
          (-200, 200), solver="bisect", tol=1e-40, maxsteps=300,
      )
      tails = [mpmath.ncdf(sign * (k * d - x)) for k in range(j + 1)]
      mixture = sum(w * t for w, t in zip(weights, tails))
      alpha = mpmath.exp(epsilon)
      truth = mixture - alpha * mpmath.ncdf(-x)
      if direction == "add":
        truth = mpmath.ncdf(x) - alpha * mixture
  bound = at(unit, epsilon, direction)
  assert truth * (1 - 1e-11) <= bound
  assert bound <= float(truth) * (1 + 2e-4) + 1e-37


@pytest.mark.parametrize("direction", BOTH)
def test_dp_accounting_agrees_for_one_number_of_places(direction):
  from dp_accounting.pld import privacy_loss_mechanism

  j, p, d = 4, 0.15, 1.1
  k = np.arange(j + 1)
  loss = privacy_loss_mechanism.MixtureGaussianPrivacyLoss(
      standard_deviation=1.0,
      sensitivities=k * d,
      sampling_probs=stats.binom.pmf(k, j, p),
      adjacency_type=(
          privacy_loss_mechanism.AdjacencyType.REMOVE
          if direction == "remove"
          else privacy_loss_mechanism.AdjacencyType.ADD
      ),
  )
  unit = kind(places=j, place_rate=1.0, rate=p, distance=d)
  theirs = loss.get_delta_for_epsilon(LOSSES)
  ours = unit.divergence(LOSSES, direction)
  np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-9)




# Enumeration ------------------------------------------------------------------

EPSILONS = (0.05, 0.3, 1.0)


def convolved(parts):
  """The sum of independent outputs."""
  means, weights = np.zeros(1), np.ones(1)
  for other, chances in parts:
    means = np.add.outer(means, other).ravel()
    weights = np.multiply.outer(weights, chances).ravel()
    means, where = np.unique(np.round(means, 9), return_inverse=True)
    weights = np.bincount(where.ravel(), weights=weights)
  return means, weights


def check(larger, smaller, h, p, m, level):
  """The largest share of the bound that is reached in each direction."""
  z = m.noise_multiplier
  unit_profiles = accounting.unit_profiles(plan.Release(h, p, m), level)
  reached = dict.fromkeys(BOTH, 0.0)
  for epsilon in EPSILONS:
    for direction in BOTH:
      pair = (larger, smaller) if direction == "remove" else (smaller, larger)
      truth = exact.hockey_stick(*pair, math.exp(epsilon), z)
      (bound,) = unit_profile.profile(
        unit_profiles, np.asarray([epsilon]), direction
      )
      assert truth <= bound + 1e-9, (level, direction, epsilon)
      reached[direction] = max(
          reached[direction], truth / max(float(bound), 1e-300)
      )
  return reached


INDEPENDENT = {  # sizes, drawn, tasks
    "one of each": ([[3, 2], [2]], (1, 1, 2), 2),
    "full classes": ([[2, 2], [2, 2]], (1, 2, 2), 2),
    "two of three": ([[3], [3], [3]], (2, 1, 2), 2),
    "full alphabets": ([[3, 3], [3, 3]], (2, 1, 2), 1),
    "three tasks": ([[3, 2]], (1, 1, 2), 3),
}


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("name", list(INDEPENDENT))
def test_independent_tasks(name, level):
  """The draws of the plan, task by task, each with a gradient of its own."""
  sizes, drawn, tasks = INDEPENDENT[name]
  h = plan.Hierarchy.from_sizes(sizes, levels=("alphabet", "class", "image"))
  p = plan.SamplingPlan(
      tuple(plan.FixedSize(n) for n in drawn),
      episode=plan.Episode(
          way=drawn[0] * drawn[1], shot=1, query=1, form="independent",
          tasks=tasks,
      ),
  )
  m = plan.Mechanism(clip_unit="episode", noise_multiplier=1.5)
  rng = np.random.default_rng(level)
  enumerated = exact.pair(h, p, level, 0)
  tables: list[dict] = [{} for _ in range(tasks)]

  def random(table, task):
    return table.setdefault(task, float(rng.uniform(-1, 1)))

  choices = [[functools.partial(random, table) for table in tables]]
  choices += [[g] * tasks for g in worst_case.gradients(h, level, 0)]
  for gradients in choices:
    larger, smaller = (
        convolved([exact.mixture(draws, -1, g) for g in gradients])
        for draws in enumerated
    )
    check(larger, smaller, h, p, m, h.levels[level])


def test_independent_tasks_reach_the_bound_of_a_primary_class():
  """J is all tasks then, and nothing is given away by revealing it."""
  h = plan.Hierarchy.regular((3, 2), levels=("class", "image"))
  p = plan.SamplingPlan(
      (plan.FixedSize(1), plan.FixedSize(2)),
      episode=plan.Episode(
          way=1, shot=1, query=1, form="independent", tasks=3
      ),
  )
  m = plan.Mechanism(clip_unit="episode", noise_multiplier=1.5)
  worst = next(worst_case.gradients(h, 0, 0))
  larger, smaller = (
      convolved([exact.mixture(draws, -1, worst)] * 3)
      for draws in exact.pair(h, p, 0, 0)
  )
  reached = check(larger, smaller, h, p, m, "class")
  assert min(reached.values()) > 1 - 1e-4


# Units that a step seldom draws twice -----------------------------------------


LEVELS = ("participant", "class", "image")
TASK = plan.Episode(way=5, shot=1, query=5)


def synthetic(copies, first=None, z=1.0, most_copies=True):
  h = plan.Hierarchy.regular(
      (1000, 8, 20), levels=LEVELS, copies=most_copies,
      most_copies=(
          {"class": copies, "image": copies} if most_copies else None
      ),
  )
  p = plan.SamplingPlan(
      (first or plan.Poisson(0.02), plan.FixedSize(5), plan.FixedSize(6)),
      episode=TASK,
  )
  m = plan.Mechanism(clip_unit="participant", noise_multiplier=z)
  return plan.Release(h, p, m)


def independent(tasks, z=1.0, form="independent"):
  h = plan.Hierarchy.regular((1000, 20), levels=("class", "image"))
  p = plan.SamplingPlan(
      (plan.FixedSize(5), plan.FixedSize(6)),
      episode=dataclasses.replace(
          TASK, form=form, tasks=tasks if form == "independent" else None
      ),
  )
  m = plan.Mechanism(clip_unit="episode", noise_multiplier=z)
  return plan.Release(h, p, m)


def epsilon_of(kind, steps, delta):
  run = (base.Phase((kind,), steps),)
  return max(
      get_accountant("pld").epsilon(run, d, delta)
      for d in amplification.DIRECTIONS
  )


@pytest.mark.parametrize("level", ["class", "image"])
def test_one_independent_task_is_a_disjoint_one(level):
  """With J revealed an image paid four times as much."""
  options = dict(steps=1000, delta=1e-6, level=level)
  one = accounting.guarantee(independent(1), **options).epsilon
  tree = accounting.guarantee(
      independent(None, form="disjoint"), **options
  ).epsilon
  assert one == pytest.approx(tree, rel=1e-3)
  if level == "image":
    (kind,) = accounting.unit_profiles(independent(1), level)
    revealed = dataclasses.replace(kind, outer_distances=(math.inf,))
    assert epsilon_of(revealed, 1000, 1e-6) > 4 * one


@pytest.mark.parametrize("first", [plan.Poisson(0.02), plan.FixedSize(20)])
@pytest.mark.parametrize("level", ["class", "image"])
def test_paths_break_as_all_holders_do(first, level):
  """The shares of `outer`, from the joint law of drawn holders."""
  copies = 3
  (kind,) = accounting.unit_profiles(synthetic(copies, first), level)
  inner = 1.0 if level == "class" else 5 / 8
  number, probs = (
      counts.binomial(copies, 0.02)
      if isinstance(first, plan.Poisson)
      else counts.hypergeometric(1000, copies, 20)
  )
  none = probs * (1 - inner) ** number  # J = 0
  drawn = float(none @ number) / copies / float(none.sum())
  shares = [share for share, _ in kind.outer]
  wanted = [1 - drawn] if level == "class" else [1 - drawn, drawn]
  np.testing.assert_allclose(shares, wanted, rtol=1e-12)
  one = float(
      probs @ (number * inner * (1 - inner) ** np.maximum(number - 1, 0))
  )
  chance, tree = kind.once
  assert chance == pytest.approx(one + none.sum())
  assert tree.parent_rate == pytest.approx(one / (one + none.sum()))
  np.testing.assert_allclose(
      tree.outer_weights, np.asarray(shares) * (1 - tree.parent_rate)
  )
