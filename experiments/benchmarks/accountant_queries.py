"""The accountant's queries over a broad list of plans, each with cold caches.

Regular plans, from a noise multiplier of 0.3 to 1e8 and from one step to ten
million; hierarchies of a thousand kinds of units; and every step of a pass, as
training asks its ledger. `measure` names the slowest query of each list.
"""

from collections.abc import Callable, Iterator
import functools
import itertools
import multiprocessing
import time
from typing import Any

import numpy as np

from episodic_dp import accounting
from episodic_dp import plan

_NOISE = (0.3, 1.0, 10.0, 1e8)
_STEPS = (1, 250, 10**7)
_TREE = ("participant", "class", "image")
_WARDS = ("hospital", "ward", "patient", "record")
_USERS = ("user", "example")
_OPTIONS: tuple[dict[str, Any], ...] = (
    {"delta": 1e-12}, {"delta": 1e-2}, {"epsilon": 2.0},
    {"delta": 1e-6, "neighbours": "replace-one"},
    {"delta": 1e-6, "group": 3}, {"delta": 1e-6, "accountant": "rdp"},
)

Plan = tuple[plan.Hierarchy, tuple[plan.Stage, ...], str, plan.Episode | None]


def _episode(form: Any, way: int, tasks: int | None = None) -> plan.Episode:
  return plan.Episode(way=way, shot=1, query=1, form=form, tasks=tasks)


def regular_plans() -> dict[str, Plan]:
  """One plan for each way in which a guarantee is proved."""
  poisson, fixed = plan.Poisson, plan.FixedSize
  regular = plan.Hierarchy.regular
  tree = regular((400_000, 20, 20), levels=_TREE)
  copies = regular(
      (4000, 5, 4), levels=_TREE, copies=True,
      most_copies={"class": 50, "image": 50},
  )
  pool = regular((50, 20, 20), levels=_TREE)
  users = regular((1000, 100), levels=_USERS)
  wards = regular((100, 20, 30, 4), levels=_WARDS)
  classes = regular((200, 30), levels=("class", "image"))
  few = (fixed(5), fixed(2))
  return {
      "Poisson": (tree, (poisson(0.004), *few), "participant", None),
      "rare Poisson": (tree, (poisson(1e-6), *few), "participant", None),
      "FixedSize": (tree, (fixed(1600), *few), "participant", None),
      "pass": (tree, (plan.RandomAllocation(250), *few), "participant", None),
      "copies": (copies, (poisson(0.02), *few), "participant", None),
      "recurring": (
          pool, (fixed(1), *few), "episode", _episode("independent", 5, 1600)
      ),
      "disjoint": (
          classes, (fixed(40), fixed(2)), "episode", _episode("disjoint", 5)
      ),
      "users": (users, (poisson(0.01), poisson(0.05)), "example", None),
      "wards": (
          wards, (poisson(0.05), poisson(0.3), poisson(0.2), fixed(2)),
          "patient", None,
      ),
  }


def ragged_plans() -> dict[str, Plan]:
  """A thousand kinds of units, and hierarchies of three and four stages."""
  rng = np.random.default_rng(1)
  poisson, fixed = plan.Poisson, plan.FixedSize
  users = plan.Hierarchy.from_sizes(
      rng.permutation(np.arange(2, 1002)).tolist(), levels=_USERS
  )
  tree = plan.Hierarchy.from_sizes(
      [rng.integers(2, 60, rng.integers(2, 40)).tolist() for _ in range(300)],
      levels=_TREE,
  )
  wards = plan.Hierarchy.from_sizes(
      [
          [rng.integers(2, 20, rng.integers(2, 8)).tolist() for _ in range(m)]
          for m in rng.integers(2, 8, 100)
      ],
      levels=_WARDS,
  )
  pass_of = plan.RandomAllocation
  return {
      "users, Poisson": (users, (poisson(0.05),) * 2, "example", None),
      "users, FixedSize": (users, (fixed(50), poisson(0.1)), "example", None),
      "users, a pass": (users, (pass_of(100), poisson(0.2)), "user", None),
      "participants": (
          tree, (poisson(0.03), poisson(0.2), poisson(0.1)), "image", None
      ),
      "classes": (tree, (fixed(10), poisson(0.2), fixed(2)), "class", None),
      "wards": (
          wards, (poisson(0.1), poisson(0.5), fixed(3), fixed(2)), "patient",
          None,
      ),
      "records": (
          wards, (poisson(0.1), poisson(0.5), poisson(0.3), poisson(0.3)),
          "record", None,
      ),
  }


def _release(found: Plan, noise: float) -> plan.Release:
  hierarchy, stages, clip, episode = found
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(stages, episode, allow_short_units=True),
      plan.Mechanism(clip_unit=clip, noise_multiplier=noise),
  )


def _queries(plans: dict[str, Plan]) -> Iterator[tuple[str, Callable]]:
  for name, found in plans.items():
    levels = found[0].levels
    asked: list[tuple[float, int, dict[str, Any]]] = [
        (z, t, {"delta": 1e-6}) for z, t in itertools.product(_NOISE, _STEPS)
    ]
    asked += [(1.0, 250, options) for options in _OPTIONS]
    for (z, steps, options), level in itertools.product(asked, levels):
      words = ", ".join(f"{k}={v}" for k, v in options.items())
      release = _release(found, z)

      def query(release=release, steps=steps, options=options, level=level):
        try:
          accounting.guarantee(release, steps=steps, level=level, **options)
        except plan.UnsoundPlanError:
          pass

      yield f"{name}, {level}, z = {z:g}, {steps} steps, {words}", query


def _seconds(query: Callable) -> float:
  start = time.process_time()
  query()
  return time.process_time() - start


def _alone(name: str) -> tuple[float, str]:
  return _seconds(_ALL[name]), name


_ALL: dict[str, Callable] = {}


def timed(kinds: str, every: int = 1) -> list[tuple[float, str]]:
  """(seconds of processor time, query), each in a process of its own.

  Args:
    kinds: "regular" or "ragged".
    every: every so many queries of the list.
  """
  plans = regular_plans() if kinds == "regular" else ragged_plans()
  _ALL.update(_queries(plans))
  names = [name for name, _ in _queries(plans)][::every]
  # Forked: what is imported is there, and no cache is.
  with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
    return pool.map(_alone, names, chunksize=1)


def ledger_of_passes(every: int = 1) -> list[tuple[float, str]]:
  """The same for the ledger of a run, asked after (every so many) steps.

  The whole run is asked first, as training does before its first step.
  """
  plans = {"regular": regular_plans()["pass"]}
  plans["ragged"] = ragged_plans()["users, a pass"]
  found = []
  for name, one in plans.items():
    release = _release(one, 1.0)
    first = release.plan.stages[0]
    assert isinstance(first, plan.RandomAllocation)
    pass_of = first.steps
    for level in release.levels:
      accounting.Ledger().add(release, pass_of, continued=False).guarantee(
          level, delta=1e-6
      )
      ledger = accounting.Ledger()
      for step in range(1, pass_of + 1):
        ledger = ledger.add(release, continued=True)
        if step % every == 0:
          query = functools.partial(ledger.spent, level, 1e-6)
          seconds = _seconds(query)
          found.append((seconds, f"{name}, {level}, step {step}"))
  return found


def slowest(kinds: str, every: int = 1) -> tuple[float, str, int]:
  """Seconds of the slowest query, its name, and how many there were.

  Args:
    kinds: "regular", "ragged" or "ledger".
    every: every so many queries of the list.
  """
  found = ledger_of_passes(every) if kinds == "ledger" else timed(kinds, every)
  return (*max(found), len(found))
