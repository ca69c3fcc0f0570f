"""The accountant's time and tightness, beside dp_accounting's own.

Setting: q = 0.004, z = 1, delta = 1e-6, 10 000 steps, Poisson tasks: 400 000
participants, 1600 tasks a step expected. Every measurement runs in a new
process, so that nothing is cached that a user would not have cached; the cases
take turns. Of two valid bounds, the smaller epsilon is the tighter.

The slowest queries are those of lists: regular plans, from a noise multiplier
of 0.3 to 1e8 and from one step to ten million; hierarchies of a thousand kinds
of units; and every step of a pass, as training asks its ledger.
"""

from collections.abc import Callable, Iterator
import functools
import itertools
import multiprocessing
import time
from typing import Any

from experiments.benchmarks import harness

# Lazy imports below: a case times the import of the accountant.
_Q, _Z, _DELTA = 0.004, 1.0, 1e-6
_NOISE = (0.3, 1.0, 10.0, 1e8)
_STEPS = (1, 250, 10**7)
_OPTIONS: tuple[dict[str, Any], ...] = (
    {"delta": 1e-12}, {"delta": 1e-2}, {"epsilon": 2.0},
    {"delta": 1e-6, "neighbours": "replace-one"},
    {"delta": 1e-6, "accountant": "rdp"},
)
# name -> text, and the milliseconds that it should take at most.
CASES: dict[str, tuple[str, float | None]] = {
    "import": ("import episodic_dp.accounting, without JAX", 500),
    "first": ("one guarantee, nothing cached", 1000),
    "other_steps": ("another number of steps, same plan, after that", 150),
    "other_delta": ("another delta", 150),
    "calibrate": ("the noise for epsilon = 1 within 1 %", 3000),
    "rdp": ("one guarantee by the Renyi accountant", None),
    "allocation": ("one pass of 250 steps by random allocation", None),
    "library": (
        "dp_accounting, PLD, SelfComposedDpEvent, its default grid", None
    ),
    "library_fine": ("dp_accounting, PLD, grid 0.001 / 50", None),
    "library_rdp": ("dp_accounting, RDP, its default orders", None),
    "regular": ("slowest query of a regular plan", 1000),
    "ragged": ("slowest query of 1000 kinds of units", 5000),
    "ledger": ("slowest ledger query within a pass", 50),
}
SMOKE = ("import", "other_steps", "library_rdp", "ledger")
SLOWEST = ("regular", "ragged", "ledger")

# Queries of one plan ----------------------------------------------------------


def _release(first: Any = None) -> Any:
  from episodic_dp import plan

  hierarchy = plan.Hierarchy.regular(
      (400_000, 5, 2), levels=("participant", "class", "image")
  )
  stages = (first or plan.Poisson(_Q), plan.FixedSize(5), plan.FixedSize(2))
  mechanism = plan.Mechanism(clip_unit="participant", noise_multiplier=_Z)
  return plan.Release(hierarchy, plan.SamplingPlan(stages), mechanism)


def _ours(
    steps: int,
    delta: float = _DELTA,
    accountant: str = "pld",
    release: Any = None,
) -> float:
  from episodic_dp import accounting

  return accounting.guarantee(
      release or _release(), steps=steps, delta=delta, level="participant",
      accountant=accountant,
  ).epsilon


def _calibrated(steps: int) -> float:
  """Return epsilon at the calibrated noise."""
  from episodic_dp import accounting

  release = _release()
  found = accounting.calibrate(
      release, steps=steps, epsilon=1.0, delta=_DELTA, level="participant"
  )
  return _ours(steps, release=release.replace(mechanism=found))


def _allocated() -> float:
  from episodic_dp import plan

  return _ours(250, release=_release(plan.RandomAllocation(250)))


def _library(steps: int, accountant: Any) -> float:
  import dp_accounting

  event = dp_accounting.PoissonSampledDpEvent(
      _Q, dp_accounting.GaussianDpEvent(_Z)
  )
  accountant.compose(dp_accounting.SelfComposedDpEvent(event, steps))
  return accountant.get_epsilon(_DELTA)


def measure_case(case: str, steps: int, every: int) -> harness.Turn:
  """Make one measurement, in this process; its value is an epsilon, or None.

  For `SLOWEST` the time is processor time, and the value names the query.

  Args:
    case: one of `CASES`.
    steps: of the guarantee.
    every: every so many queries of a list.
  """
  if case in SLOWEST:
    seconds, name, many = slowest(case, every)
    return harness.Turn(seconds, seconds, None, f"of {many}: {name}")
  if case == "import":
    return harness.timed(_import)
  from dp_accounting import pld
  from dp_accounting import rdp

  _import()
  if case in ("other_steps", "other_delta"):
    _ours(steps)
  return harness.timed({
      "first": lambda: _ours(steps),
      "other_steps": lambda: _ours(steps - steps // 10),
      "other_delta": lambda: _ours(steps, _DELTA / 10),
      "calibrate": lambda: _calibrated(steps),
      "rdp": lambda: _ours(steps, _DELTA, "rdp"),
      "allocation": _allocated,
      "library": lambda: _library(steps, pld.PLDAccountant()),
      "library_fine": lambda: _library(
          steps, pld.PLDAccountant(value_discretization_interval=2e-5)
      ),
      "library_rdp": lambda: _library(steps, rdp.RdpAccountant()),
  }[case])


def _import() -> None:
  import episodic_dp.accounting  # noqa: F401


# The slowest of a list --------------------------------------------------------


def plans(kinds: str) -> dict[str, Any]:
  """Return name -> release without noise multiplier, and its options.

  Args:
    kinds: "regular", one plan for each way in which a guarantee is proved; or
      "ragged", a thousand kinds of units in two to four stages.
  """
  import numpy as np

  from episodic_dp import plan

  poisson, fixed = plan.Poisson, plan.FixedSize
  pass_of, regular = plan.RandomAllocation, plan.Hierarchy.regular
  ragged = plan.Hierarchy.from_sizes
  tree = ("participant", "class", "image")
  wards = ("hospital", "ward", "patient", "record")
  users = ("user", "example")
  few = (fixed(5), fixed(2))

  def episode(form: Any, tasks: int | None = None) -> plan.Episode:
    return plan.Episode(way=5, shot=1, query=1, form=form, tasks=tasks)

  if kinds == "regular":
    people = regular((400_000, 20, 20), levels=tree)
    copies = regular(
        (4000, 5, 4), levels=tree, copies=True,
        most_copies={"class": 50, "image": 50},
    )
    return {
        "Poisson": (people, (poisson(0.004), *few), "participant", None),
        "rare Poisson": (people, (poisson(1e-6), *few), "participant", None),
        "FixedSize": (people, (fixed(1600), *few), "participant", None),
        "pass": (people, (pass_of(250), *few), "participant", None),
        "copies": (copies, (poisson(0.02), *few), "participant", None),
        "recurring": (
            regular((50, 20, 20), levels=tree), (fixed(1), *few), "episode",
            episode("independent", 1600),
        ),
        "disjoint": (
            regular((200, 30), levels=("class", "image")),
            (fixed(40), fixed(2)), "episode", episode("disjoint"),
        ),
        "users": (
            regular((1000, 100), levels=users),
            (poisson(0.01), poisson(0.05)), "example", None,
        ),
        "wards": (
            regular((100, 20, 30, 4), levels=wards),
            (poisson(0.05), poisson(0.3), poisson(0.2), fixed(2)), "patient",
            None,
        ),
    }
  rng = np.random.default_rng(1)
  sizes = rng.permutation(np.arange(2, 1002)).tolist()
  people = ragged(
      [rng.integers(2, 60, rng.integers(2, 40)).tolist() for _ in range(300)],
      levels=tree,
  )
  hospitals = ragged(
      [
          [rng.integers(2, 20, rng.integers(2, 8)).tolist() for _ in range(m)]
          for m in rng.integers(2, 8, 100)
      ],
      levels=wards,
  )
  some = ragged(sizes, levels=users)
  return {
      "users, Poisson": (some, (poisson(0.05),) * 2, "example", None),
      "users, FixedSize": (some, (fixed(50), poisson(0.1)), "example", None),
      "users, a pass": (some, (pass_of(100), poisson(0.2)), "user", None),
      "participants": (
          people, (poisson(0.03), poisson(0.2), poisson(0.1)), "image", None
      ),
      "classes": (people, (fixed(10), poisson(0.2), fixed(2)), "class", None),
      "wards": (
          hospitals, (poisson(0.1), poisson(0.5), fixed(3), fixed(2)),
          "patient", None,
      ),
      "records": (
          hospitals, (poisson(0.1), poisson(0.5), poisson(0.3), poisson(0.3)),
          "record", None,
      ),
  }


def _described(found: Any, noise: float) -> Any:
  from episodic_dp import plan

  hierarchy, stages, clip, episode = found
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(stages, episode, allow_short_units=True),
      plan.Mechanism(clip_unit=clip, noise_multiplier=noise),
  )


def _ask(release: Any, **options: Any) -> None:
  from episodic_dp import accounting
  from episodic_dp import plan

  try:
    accounting.guarantee(release, **options)
  except plan.UnsoundPlanError:
    pass


def _queries(kinds: str) -> Iterator[tuple[str, Callable[[], None]]]:
  for name, found in plans(kinds).items():
    asked: list[tuple[float, int, dict[str, Any]]] = [
        (z, t, {"delta": 1e-6}) for z, t in itertools.product(_NOISE, _STEPS)
    ]
    asked += [(1.0, 250, options) for options in _OPTIONS]
    for (z, steps, options), level in itertools.product(
        asked, found[0].levels
    ):
      words = ", ".join(f"{k}={v}" for k, v in options.items())
      query = functools.partial(
          _ask, _described(found, z), steps=steps, level=level, **options
      )
      yield f"{name}, {level}, z = {z:g}, {steps} steps, {words}", query


_ALL: dict[str, Callable[[], Any]] = {}


def _alone(name: str) -> tuple[float, str]:
  start = time.process_time()
  _ALL[name]()
  return time.process_time() - start, name


def _timed(kinds: str, every: int) -> list[tuple[float, str]]:
  """Return (seconds of processor time, query), each in a new process."""
  _import()
  _ALL.update(_queries(kinds))
  names = [name for name, _ in _queries(kinds)][::every]
  # Forked: what is imported is there, and no cache is.
  with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
    return pool.map(_alone, names, chunksize=1)


def _ledger_of_a_pass(every: int) -> list[tuple[float, str]]:
  """Return the same for the ledger of a run, asked after its steps.

  The whole run is asked first, as training does before its first step.
  """
  from episodic_dp import accounting

  release = _described(plans("ragged")["users, a pass"], 1.0)
  found = []
  for level in release.levels:
    accounting.Ledger().add(release, 100, continued=False).guarantee(
        level, delta=1e-6
    )
    ledger = accounting.Ledger()
    for step in range(1, 101):
      ledger = ledger.add(release, continued=True)
      if step % every == 0:
        name = f"{level}, step {step}"
        _ALL[name] = functools.partial(ledger.spent, level, 1e-6)
        found.append(_alone(name))
  return found


def slowest(kinds: str, every: int = 1) -> tuple[float, str, int]:
  """Return seconds of the slowest query, its name, and the number of queries.

  Args:
    kinds: "regular", "ragged" or "ledger".
    every: every so many queries of the list.
  """
  if kinds == "ledger":
    found = _ledger_of_a_pass(every)
  else:
    found = _timed(kinds, every)
  return (*max(found), len(found))


def measure(options: harness.Options) -> harness.Found:
  """Measure every case in turns: milliseconds, and the epsilon found."""
  steps, every = (20, 99) if options.smoke else (10_000, 1)

  def case(name: str) -> harness.Turn:
    # Threads that wait would count as processor time.
    env = {"OPENBLAS_NUM_THREADS": "1"} if name in SLOWEST else None
    return harness.Turn(*harness.in_a_process(
        "accountant_queries.measure_case", name, steps, every, env=env
    ))

  names = SMOKE if options.smoke else tuple(CASES)
  turns = harness.interleaved(
      {n: functools.partial(case, n) for n in names if n not in SLOWEST},
      options,
      warm_up=0,
  )
  # Hundreds of queries each: once is enough.
  turns |= {name: [case(name)] for name in SLOWEST if name in names}
  cases, rows = harness.summaries(turns), []
  for name, one in cases.items():
    text, target = CASES[name]
    value = turns[name][-1].value
    note = f"ε = {value:.5g}" if isinstance(value, float) else value or ""
    spread = {"median": "seconds", "least": "fastest", "most": "slowest"}
    rows.append(harness.row(
        text,
        {end: 1e3 * one[field] for end, field in spread.items()},
        at_most=target, unit="ms", note=note,
    ))
  return harness.Found(
      settings={"steps": steps, "q": _Q, "z": _Z, "delta": _DELTA},
      cases=cases, rows=rows,
  )
