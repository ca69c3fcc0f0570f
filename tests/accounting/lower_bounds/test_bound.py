"""Lower bounds beside the upper ones: below, near, and what they find out."""

import math

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import report
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.lower_bounds import bound
from episodic_dp.accounting.lower_bounds import candidates
from episodic_dp.accounting.lower_bounds import data_sets
from episodic_dp.accounting.reference import exact

DELTA = 1e-6
TASKS = plan.Hierarchy.regular(
    (400_000, 5, 15), levels=("participant", "class", "image")
)


def released(hierarchy, stages, clip_unit, z, episode=None, **mechanism):
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(stages, episode=episode),
      plan.Mechanism(clip_unit=clip_unit, noise_multiplier=z, **mechanism),
  )


def both(release, level, steps, **options):
  options = options or {"delta": DELTA}
  found = accounting.guarantee(release, steps=steps, level=level, **options)
  upper = found.epsilon if "delta" in options else found.delta
  assert found.lower <= upper
  return found.lower, upper


def paper(first=None):
  """The setting of DP-MAML."""
  first = first or plan.Poisson(0.004)
  return released(
      TASKS, (first, plan.All(), plan.FixedSize(3)), "participant", 1.0
  )


def test_neighbours_that_are_no_relation_are_refused():
  with pytest.raises(plan.PlanError, match="'add-or-remove', 'replace-one'"):
    accounting.lower_bound(
        paper(), steps=1, level="image", delta=DELTA, neighbours="replace"
    )


@pytest.mark.parametrize("level", ["participant", "image"])
def test_the_papers_setting_is_within_two_thousandths(level):
  lower, upper = both(paper(), level, 250)
  assert lower >= 0.998 * upper
  if level == "participant":
    assert 0.4978 < lower and upper < 0.49836


@pytest.mark.parametrize(
    "steps,options", [(60, {"delta": 1e-5}), (20, {"epsilon": 0.3})]
)
def test_passes_over_the_participants_are_tight(steps, options):
  lower, upper = both(
      paper(plan.RandomAllocation(40)), "participant", steps, **options
  )
  assert lower >= 0.99 * upper


@pytest.mark.parametrize("first,z,steps", [
    (plan.Poisson(1e-3), 5.0, 30), (plan.Poisson(0.2), 0.7, 1),
    (plan.FixedSize(10), 0.7, 1), (plan.FixedSize(2000), 5.0, 30),
])
def test_one_stage_is_tight(first, z, steps):
  h = plan.Hierarchy.regular((10_000,), levels=("record",))
  release = released(h, (first,), "record", z)
  for options in ({"delta": 1e-4}, {"epsilon": 0.3}):
    lower, upper = both(release, "record", steps, **options)
    # The sampler's error covers the least of numbers.
    assert lower >= 0.99 * upper - 1e-20


def test_everything_in_every_step_is_one_gaussian():
  h = plan.Hierarchy.regular((100,), levels=("record",))
  release = released(h, (plan.All(),), "record", 10.0)
  truth = accounting.gaussian.analytic_epsilon(10.0, DELTA, steps=300)
  lower, _ = both(release, "record", 300)
  assert 0.9999999 * truth <= lower <= truth


def test_users_of_examples_by_poisson():
  """User-level privacy of example-level training."""
  h = plan.Hierarchy.regular((1000, 100), levels=("user", "example"))
  release = released(
      h, (plan.Poisson(0.01), plan.Poisson(0.05)), "example", 10.0
  )
  lower, _ = both(release, "user", 500)
  assert 0.53 < lower <= 0.536


def test_a_planted_epsilon_that_is_too_small_is_found_out():
  """The theorem as printed, and a distance of C under replacement."""
  h = plan.Hierarchy.regular((400_000,), levels=("participant",))
  release = released(h, (plan.FixedSize(1600),), "participant", 1.0)
  at = 0.5
  printed = accounting.theorem3_as_printed(0.004, at, 1.0)
  lower = accounting.lower_bound(
      release, steps=1, level="participant", epsilon=at
  )
  assert lower > 2 * printed
  wrong = accounting.epsilon(1.0, 0.004, 1.0, 250, DELTA)
  lower = accounting.lower_bound(
      release, steps=250, level="participant", delta=DELTA
  )
  assert lower > 10 * wrong
  # Inside a task that is present either way: an inclusion rate is not enough.
  inside = paper(plan.FixedSize(1600))
  wrong = accounting.epsilon(1.0, 0.004 * 0.2, 2.0, 250, DELTA, direction="add")
  assert accounting.lower_bound(
      inside, steps=250, level="image", delta=DELTA
  ) > 2 * wrong


def test_where_nothing_is_guaranteed_nothing_is_claimed():
  h = plan.Hierarchy.regular((100,), levels=("record",))
  for z, fields in (
      (0.0, {}),
      (1.0, dict(
          clipping="percentile_window", clip_percentile=50, clip_window=4
      )),
  ):
    release = released(h, (plan.Poisson(0.1),), "record", z, **fields)
    found = accounting.guarantee(release, steps=5, level="record", delta=DELTA)
    assert math.isinf(found.epsilon) and found.lower == 0
    assert found.as_dict()["epsilon_lower"] == 0


def test_words_round_to_the_outside():
  assert report.between(0.497912, 0.498312) == "between 0.4979 and 0.4984"
  assert report.between(0.0, 0.498312) == "0.4984"
  assert report.between(3.0, math.inf) == "inf"


def test_a_noised_count_takes_its_part():
  h = plan.Hierarchy.regular((10_000,), levels=("record",))
  release = released(
      h, (plan.Poisson(0.01),), "record", 1.0, clipping="private_quantile",
      clip_quantile=0.5, clip_rate=0.2, count_noise=10.0,
  )
  lower, upper = both(release, "record", 100)
  assert lower >= 0.99 * upper


def test_parts_of_a_run_share_their_data_set():
  h = plan.Hierarchy.regular((10_000,), levels=("record",))
  loose, close = (
      released(h, (plan.Poisson(p),), "record", z)
      for p, z in ((0.01, 1.0), (0.002, 2.0))
  )
  ledger = accounting.Ledger().add(loose, 100).add(close, 200)
  found = ledger.guarantee("record", delta=DELTA)
  assert 0.995 * found.epsilon <= found.lower <= found.epsilon
  part, _ = both(loose, "record", 100)
  assert found.lower > part
  other = released(
      plan.Hierarchy.regular((5000,), levels=("record",)),
      (plan.Poisson(0.01),), "record", 1.0,
  )
  apart = accounting.Ledger().add(loose, 100).add(other, 200)
  found = apart.guarantee("record", delta=DELTA)
  assert part < found.lower <= found.epsilon


def test_delta_falls_with_epsilon_and_answers_epsilon():
  release = paper()
  lower, _ = both(release, "participant", 250)
  deltas = [
      accounting.lower_bound(
          release, steps=250, level="participant", epsilon=e
      )
      for e in (0.3, lower, 0.7)
  ]
  assert deltas == sorted(deltas, reverse=True)
  assert deltas[1] == pytest.approx(DELTA, rel=0.02)


def test_a_lower_bound_is_refused_where_a_guarantee_is():
  h = plan.Hierarchy.regular(
      (100, 5, 15), levels=("participant", "class", "image"), copies=True
  )
  release = released(
      h, (plan.Poisson(0.1), plan.All(), plan.FixedSize(3)), "participant", 1.0
  )
  with pytest.raises(plan.UnsoundPlanError):
    accounting.lower_bound(release, steps=1, level="image", delta=DELTA)


def test_the_bound_reads_nothing_of_the_distances(monkeypatch):
  """An error in them shows as an epsilon below the lower bound."""
  release = released(
      plan.Hierarchy.regular((1000,), levels=("record",)),
      (plan.FixedSize(10),), "record", 1.0,
  )
  expected = bound.lower_bound(release, steps=20, level="record", delta=1e-5)
  def halved(*args):
    raise AssertionError("the upper bound's distances were asked for")

  monkeypatch.setattr(sensitivity, "unit_profiles", halved)
  found = bound.lower_bound(release, steps=20, level="record", delta=1e-5)
  assert found == expected


# Every kind of plan -----------------------------------------------------------


def grouped(rng, form):
  """Tasks made of drawn classes."""
  levels = ("alphabet", "class", "image")[-int(rng.integers(2, 4)) :]
  sizes = rng.integers(3, 9, len(levels)).tolist()
  stages = [plan.FixedSize(int(rng.integers(1, s + 1))) for s in sizes[:-1]]
  stages.append(plan.FixedSize(int(rng.integers(2, sizes[-1] + 1))))
  classes = math.prod(s.n for s in stages[:-1])
  block = stages[-2].n  # The classes of one alphabet lie in whole tasks.
  ways = [
      w
      for w in range(1, classes + 1)
      if classes % w == 0 and (w % block == 0 or block % w == 0)
  ]
  independent = form == "independent"
  return (
      plan.Hierarchy.regular(sizes, levels=levels),
      plan.SamplingPlan(tuple(stages), episode=plan.Episode(
          way=classes if independent else int(rng.choice(ways)), shot=1,
          query=stages[-1].n - 1, form=form,
          tasks=int(rng.integers(1, 4)) if independent else None,
      )),
      dict(clip_unit="episode"),
  )


def participants(rng, kind):
  """Tasks that are primary units."""
  sizes = rng.integers(3, 9, 3).tolist()
  first = (
      plan.FixedSize(int(rng.integers(1, sizes[0] + 1))),
      plan.Poisson(float(rng.uniform(0.01, 0.5))), plan.All(),
      plan.RandomAllocation(int(rng.integers(2, 8))),
  )[rng.integers(3 if kind == "copies" else 4)]
  stages = (
      first, plan.FixedSize(int(rng.integers(1, sizes[1] + 1))),
      plan.FixedSize(int(rng.integers(2, sizes[2] + 1))),
  )
  counts = {name: int(rng.integers(1, 4)) for name in ("class", "image")}
  copies = kind == "copies"
  mechanism = dict(clip_unit="participant")
  if kind == "sample":
    mechanism = dict(
        clip_unit="image", order="first", inner_steps=int(rng.integers(1, 4)),
        inner_clip_norm=1.0,
        inner_noise_multiplier=float(rng.uniform(0.5, 4)),
    )
  return (
      plan.Hierarchy.regular(
          sizes, levels=TASKS.levels, copies=copies,
          most_copies=counts if copies else None,
      ),
      plan.SamplingPlan(stages, episode=plan.Episode(
          way=stages[1].n, shot=1, query=stages[2].n - 1
      )),
      mechanism,
  )


def tree(rng, _):
  """Ragged and regular ones, every stage."""
  levels = ("hospital", "patient", "record")[: int(rng.integers(1, 4))]

  def sizes(depth):
    if depth == 1:
      return int(rng.integers(1, 6))
    return [sizes(depth - 1) for _ in range(rng.integers(1, 5))]

  def stage():
    return (
        plan.FixedSize(int(rng.integers(1, 4))),
        plan.Poisson(float(rng.uniform(0.001, 1))), plan.All(),
    )[rng.integers(3)]

  if rng.random() < 0.5:
    h = plan.Hierarchy.regular(
        rng.integers(1, 7, len(levels)).tolist(), levels=levels
    )
  else:
    h = plan.Hierarchy.from_sizes(sizes(len(levels)), levels=levels)
  p = plan.SamplingPlan(
      tuple(stage() for _ in levels), allow_short_units=True
  )
  return h, p, dict(clip_unit=str(rng.choice(levels)))


KINDS = {
    "tree": tree, "independent": grouped, "disjoint": grouped,
    "unit": participants, "copies": participants, "sample": participants,
}


def random_bounds(kind, seed):
  """Compare all that is asked of one random plan."""
  rng = np.random.default_rng([seed, sorted(KINDS).index(kind)])
  h, p, mechanism = KINDS[kind](rng, kind)
  z = float(rng.uniform(0.5, 20))
  release = plan.Release(
      h, p, plan.Mechanism(noise_multiplier=z, **mechanism)
  )
  steps = int(rng.choice([1, 2, 20]))
  asked = {"delta": float(rng.choice([0.1, 1e-5]))}
  if rng.random() < 0.3:
    asked = {"epsilon": float(rng.choice([0.0, 0.5, 3.0]))}
  for level in h.levels:
    for neighbours in ("add-or-remove", "replace-one"):
      try:
        found = accounting.guarantee(
            release, steps=steps, level=level, neighbours=neighbours, **asked
        )
      except plan.UnsoundPlanError:
        continue
      upper = found.epsilon if "delta" in asked else found.delta
      assert found.lower <= upper * (1 + 1e-9) + 1e-15, (
          release, steps, level, neighbours, asked
      )


@pytest.mark.parametrize("kind", KINDS)
def test_no_lower_bound_is_above_the_upper_one(kind):
  random_bounds(kind, 0)


@pytest.mark.slow  # 240 plans
@pytest.mark.parametrize("kind", KINDS)
def test_none_of_many_lower_bounds_is_above_the_upper_one(kind):
  for seed in range(100, 140):
    random_bounds(kind, seed)


def test_tasks_that_draw_anew_have_the_law_of_all_their_samples():
  """Two tasks that draw two classes of three, and both examples of each."""
  h = plan.Hierarchy.regular((3, 2), levels=("class", "image"))
  stages = (plan.FixedSize(2), plan.FixedSize(2))
  episode = plan.Episode(way=2, shot=1, query=1, form="independent", tasks=2)
  release = released(h, stages, "episode", 1.0, episode)
  one = exact.samples(exact.tree(h), stages)
  found = dict(candidates.candidates(release, "class"))
  for elsewhere in (-1, 0):
    law = {}
    for p, first in one:
      for q, second in one:
        held = [any(c[1] == 0 for c in task[2]) for task in (first, second)]
        total = sum(1 if there else elsewhere for there in held)
        law[total] = law.get(total, 0.0) + p * q
    values = data_sets.Values(beside=(), within=(elsewhere,))
    pair = found[0, str(values)]
    got = {m: w for m, w in zip(pair.means, pair.larger) if w > 0}
    assert got == pytest.approx(law)
