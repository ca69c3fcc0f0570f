"""Records that recur across the tasks of a step."""


import mpmath
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import recurrence
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts
from tests import plans
from tests.accounting import enumerated
from tests.accounting import random_plans
from tests.accounting import random_tasks
from tests.oracles import exact
from tests.oracles import worst_case

BOTH = amplification.DIRECTIONS


def kind(places=3, place_rate=0.4, rate=0.3, distance=1.5):
  return recurrence.Recurrence(
      places=places,
      place_rate=place_rate,
      rate=rate,
      distance=distance,
      drawn_of=None,
  )


def at(unit, epsilon, direction):
  return float(unit.divergence(np.asarray([epsilon]), direction)[0])


# Values -----------------------------------------------------------------------


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
      truth = (
          mpmath.ncdf(x) - alpha * mixture
          if direction == "add"
          else mixture - alpha * mpmath.ncdf(-x)
      )
  bound = at(unit, epsilon, direction)
  assert truth * (1 - 1e-11) <= bound
  assert bound <= float(truth) * (1 + 2e-4) + 1e-37


# Enumeration ------------------------------------------------------------------

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
  """Return the draws of the plan, task by task, each with its own gradient."""
  sizes, drawn, tasks = INDEPENDENT[name]
  h = plans.nested("alphabet class image", sizes)
  p = plans.sampling(
      *drawn, way=drawn[0] * drawn[1], shot=1, query=1, form="independent",
      tasks=tasks,
  )
  release = plans.release(h, p, "episode", 1.5)
  units = accounting.unit_profiles(release, h.levels[level])
  rng = np.random.default_rng(level)
  drawn_trees = exact.pair(h, p, level, 0)
  choices = [[random_plans.random_gradient(rng) for _ in range(tasks)]]
  choices += [[g] * tasks for g in worst_case.gradients(h, level, 0)]
  for gradients in choices:
    pair = [
        random_tasks.convolved([exact.mixture(draws, -1, g) for g in gradients])
        for draws in drawn_trees
    ]
    enumerated.check_bounds(pair, units, 1.5, (0.05, 0.3, 1.0))


# Units that a step seldom draws twice -----------------------------------------


@pytest.mark.parametrize("first", [plan.Poisson(0.02), plan.FixedSize(20)])
@pytest.mark.parametrize("level", ["class", "image"])
def test_paths_break_as_all_holders_do(first, level):
  """The shares of `outer`, from the joint law of drawn holders."""
  copies = 3
  h = plans.tree(
      "participant class image", 1000, 8, 20, copies=True,
      most_copies={"class": copies, "image": copies},
  )
  p = plans.sampling(first, 5, 6, way=5, shot=1, query=5)
  (kind,) = accounting.unit_profiles(plans.release(h, p, "participant"), level)
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
