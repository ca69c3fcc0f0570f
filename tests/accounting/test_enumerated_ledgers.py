"""Random ledgers on tiny trees, each enumerated: none is below the truth.

A ledger has one to three runs on the same people: plans of every form, passes
and parts of passes, runs that were resumed and pay the steps since their
checkpoint again, other noise, other trees. Of every form one to three units are
removed, added or replaced together. The truth is the divergence of all releases
together, for data that may depend on earlier ones. The slow test draws a new
seed whenever it runs, which a failure names.
"""

import dataclasses
import itertools
import types

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.training import meta_training
from tests.accounting import enumerated
from tests.accounting import random_plans as plans
from tests.accounting import random_tasks
from tests.accounting import random_trees

SEED, LEDGERS, QUICK = 40, 2000, 14
MOST_RELEASES = 4


def several(rng, level=None, count=None) -> plans.Case:
  """One to three units of a tree, drawn in passes or not."""
  sizes = rng.integers(1, 4, rng.integers(1, 4)).tolist()
  level = level or str(rng.choice(plans.LEVELS[1:]))
  first = 0 if level == plans.LEVELS[0] else 1
  h = plans.hierarchy_of(sizes, plans.LEVELS[first : first + 2])
  k = h.level_index(level)
  count = count or int(rng.integers(1, 4))
  units = rng.permutation(h.num_units(k))[:count].tolist()
  if not units:
    raise plans.TryAgainError
  make = random_trees.pass_on if rng.integers(2) else random_trees.on_tree
  return make(rng, h, k, units)


def grouped(make):
  """Draw one to three units of a kind of plan."""
  return lambda rng: make(rng, int(rng.integers(1, 4)))


KINDS = [
    random_trees.tree,
    several,
    grouped(random_trees.copies),
    grouped(random_tasks.disjoint),
    several,
    random_trees.inside_clip_units,
    grouped(random_tasks.independent),
    several,
    random_trees.records_of_clusters,
    grouped(random_tasks.participants),
    grouped(random_tasks.sample_level),
    grouped(random_tasks.groups),
    grouped(random_tasks.independent),
    grouped(random_tasks.disjoint),
]


def members(case, unit):
  """Count the units of a case's level that leave together."""
  h = case.release.hierarchy
  held = h.most_copies[h.level_index(case.level)] if h.most_copies else 1
  return max(len(unit.places) // held, 1)


def drawn_runs(rng, case, unit):
  """Yield (release, unit, steps under each key) of runs on the same people."""
  group = members(case, unit)
  for _ in range(rng.integers(1, 4)):
    release = case.release
    plans.refuse_unproved(release, case.level)
    steps = int(rng.integers(1, 4))
    taken = [range(steps)]
    if not rng.integers(4):  # It lost some, and began another key.
      taken.append(range(int(rng.integers(steps)), steps))
    yield release, unit, taken
    which = rng.integers(4)
    if which < 2:
      z = float(rng.choice([0.6, 1.0, 2.5]))
      again = dataclasses.replace(release.mechanism, noise_multiplier=z)
      case = case._replace(release=release.replace(mechanism=again))
      continue
    if which == 2:
      make = random_trees.pass_on if rng.integers(2) else random_trees.on_tree
      h = release.hierarchy
      case = make(rng, h, h.level_index(case.level), unit.places)
    else:  # The same units in another tree.
      case = several(rng, case.level, group)
      if len(case.units[0].places) < group:
        raise plans.TryAgainError
    (unit,) = case.units


class Paid(meta_training.Spending):
  """The ledger of a run alone, without the guarantees of all its levels."""

  def _guarantees(self, ledger):
    return {}


def added(rng, ledger, release, taken):
  """The ledger after a run, as training keeps it, or added in pieces."""
  *_, last = taken
  if len(taken) > 1:
    spec = types.SimpleNamespace(
        release=release, steps=last.stop, privacy_unit=None
    )
    return ledger.joined(Paid(spec, taken, last.stop).ledger(last.stop))
  cut = int(rng.integers(last.stop))
  for steps, continued in ((cut, False), (last.stop - cut, cut > 0)):
    if steps:
      ledger = ledger.add(release, steps, continued=continued)
  return ledger


def shown(release, pairs, taken):
  """Yield what each step or pass shows, for different data."""
  first, z = release.plan.stages[0], float(release.mechanism.noise_multiplier)
  if not isinstance(first, plan.RandomAllocation):
    step = [enumerated.cells(pair, z) for pair in pairs]
    yield from [step] * sum(map(len, taken))
    return
  for steps in taken:
    for begun in range(0, steps.stop, first.steps):
      seen = slice(max(steps.start - begun, 0), steps.stop - begun)
      if seen.start < first.steps:
        yield [
            enumerated.cells([(m[:, seen], w) for m, w in pair], z)
            for pair in pairs
        ]


def drawn_ledger(seed, number):
  """Draw (guarantee, outputs of its releases, description) of a number."""
  for attempt in itertools.count():
    rng = np.random.default_rng([seed, number, attempt])
    try:
      case = KINDS[number % len(KINDS)](rng)
      units = list(case.units)
      unit = units[rng.integers(len(units))]
      asked = dict(
          level=case.level,
          accountant=str(rng.choice(["pld"] * 6 + ["rdp", "moments"])),
      )
      asked["group"] = members(case, unit)
      if rng.integers(2):
        asked["neighbours"] = "replace-one"
      asked |= (
          dict(epsilon=float(rng.choice([0.0, 0.1, 0.5, 1.0, 2.0, 5.0])))
          if rng.integers(2)
          else dict(delta=float(rng.choice([0.3, 1e-2, 1e-4, 1e-7])))
      )
      ledger, releases = accounting.Ledger(), []
      for release, own, taken in drawn_runs(rng, case, unit):
        pairs = list(own.pairs(replaced="neighbours" in asked))
        releases += shown(release, pairs, taken)
        if not pairs or len(releases) > MOST_RELEASES:
          raise plans.TryAgainError
        ledger = added(rng, ledger, release, taken)
      reported = f"ledger {number} of seed {seed}: {ledger}, {asked}"
      return ledger.guarantee(**asked), releases, reported
    except (plans.TryAgainError, plan.UnsoundPlanError):
      continue


def check_ledger(seed, number):
  """Require a value that is no less than the truth; return truth and bound."""
  found, releases, reported = drawn_ledger(seed, number)
  truth = max(
      enumerated.composed(parts, found.epsilon)
      for parts in (releases, [[p[::-1] for p in r] for r in releases])
  )
  assert truth <= found.delta * (1 + 1e-6) + 1e-12, (reported, truth, found)
  return truth, found.delta


def test_no_ledger_is_below_the_truth():
  for number in range(QUICK):
    check_ledger(SEED, number)


@pytest.mark.slow  # About forty minutes.
def test_no_ledger_of_a_new_seed_is_below_the_truth():
  (seed,) = np.random.SeedSequence().generate_state(1)
  for number in range(LEDGERS):
    check_ledger(int(seed), number)
