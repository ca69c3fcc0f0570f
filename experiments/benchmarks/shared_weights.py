"""Steps of learners whose tasks share the weights, beside PyTorch's best way.

ProtoNet and the ridge head on 5-way 1-shot tasks with 1 and 15 queries of a
class, and supervised learning of single examples (DP-SGD): Conv4 of width 16,
32 and 64 on images of 28 x 28, 32 x 32 x 3 and 84 x 84 x 3. Every task's
gradient, or every example's, is clipped and added up.

  ours     the step of `private.make_meta_step` without noise, on all cores
  product  a large product of matrices on all cores, the floor's measure
  loop, vmap, ghost  see `torch_shared`; each by one process with a thread for
           every core and, "side by side", by a process of one thread for every
           core with a share of the tasks

All start from the same weights and tasks, and their sums must agree with a loop
in float64. The best PyTorch way of a case is found in a trial, and the best two
take turns with ours. The floor of a task is the operations of its plain
convolutions (forward, gradients of what goes in but the images, gradients of
kernels) over the rate of the product in the same turn.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging
import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import private
from episodic_dp import sampling
from episodic_dp import training
from experiments.benchmarks import harness
from experiments.benchmarks import settings
from experiments.benchmarks import shared_peers
from experiments.benchmarks import shared_problem
from experiments.benchmarks import sums as sums_lib
from experiments.benchmarks import workers

APART = 1e-2  # At most, relatively.
FASTER, TO_FLOOR, WIDE = 2.5, 2.0, 32
SHAPES = ((28, 28, 1), (32, 32, 3), (84, 84, 3))
# Of a turn: operations, and tasks or examples at most.
_OPERATIONS, _MOST_TASKS, _MOST_EXAMPLES = 2e10, 256, 1024
_SIDE, _PRODUCTS = 2048, 2
_TRIAL_TASKS, _TRIAL_EXAMPLES, _BEST = 16, 128, 2  # The best of a trial go on.
_CLIP = 1.0


class Case(NamedTuple):
  """A learner and its sizes; queries are those of a class."""

  learner: settings.Kind
  width: int
  query: int
  shape: tuple[int, int, int]

  @property
  def parts(self) -> tuple[str, ...]:
    """What it is asked for by."""
    query = () if self.single else (f"query={self.query}",)
    size = f"size={self.shape[0]}"
    return self.learner, f"width={self.width}", *query, size

  @property
  def single(self) -> bool:
    """Whether its tasks are single examples."""
    return self.learner == "supervised"

  @property
  def operations(self) -> float:
    """Of a task's convolutions, were each of them a plain one."""
    images = 1 if self.single else settings.WAY * (settings.SHOT + self.query)
    (height, width, channels), total = self.shape, 0.0
    for i in range(4):
      # Multiplications and additions of a 3 x 3 kernel.
      once = 2.0 * height * width * 9 * channels * self.width
      total += images * once * (3 if i else 2)
      height, width, channels = height // 2, width // 2, self.width
    return total

  @property
  def tasks(self) -> int:
    """Of a step: a multiple of the cores that takes about a second."""
    most = _MOST_EXAMPLES if self.single else _MOST_TASKS
    if self in SMOKE:
      most = workers.CORES
    most = min(most, int(_OPERATIONS / self.operations))
    return max(1, most // workers.CORES) * workers.CORES


_KINDS: tuple[settings.Kind, ...] = ("protonet", "ridge", "supervised")
CASES = [
    Case(learner, width, query, shape)
    for learner in _KINDS
    for width in (16, 32, 64)
    for query in ((1,) if learner == "supervised" else (1, 15))
    for shape in SHAPES
]
SMOKE = [
    Case("protonet", 4, 1, (16, 16, 1)),
    Case("supervised", 4, 1, (16, 16, 1)),
]


def chosen(options: harness.Options) -> list[Case]:
  """The cases that are asked for.

  Raises:
    ValueError: none is what `only` says.
  """
  cases = SMOKE if options.smoke else CASES
  found = [case for case in cases if set(options.only) <= set(case.parts)]
  if not found:
    raise ValueError(
        f"no case is {', '.join(options.only)}: ask for parts of such as"
        f" {', '.join(cases[0].parts)}"
    )
  return found


def measure_case(
    case: Case,
    pools: Mapping[str, workers.Workers],
    product: Callable[[], Any],
    options: harness.Options,
) -> dict[str, Any]:
  """One case: times of a task, and ratios.

  Raises:
    ValueError: the sums differ by more than rounding explains.
  """
  run = settings.shared_weights(
      case.learner,
      query=case.query,
      width=case.width,
      shape=case.shape,
      tasks=case.tasks,
      clip_norm=_CLIP,
  )
  params, episodes = jax.device_get(run.init().params), run.drawn_tasks()
  step, ours = run.first_sum(case.tasks, mesh=training.make_mesh())
  functions: dict[str, Callable[[], Any]] = {"ours": step, "product": product}
  trial: dict[str, float] = {}
  apart: dict[str, float] = {}
  if pools:
    problem = shared_problem.Problem(
        case.learner,
        params,
        support=_arrays(episodes.support),
        query=_arrays(episodes.query),
        clip=_CLIP,
    )
    peers = shared_peers.Peers(pools)
    some = min(case.tasks, _TRIAL_EXAMPLES if case.single else _TRIAL_TASKS)
    trial, apart = peers.trial(problem.part(0, case.tasks // some))
    apart["ours"] = sums_lib.difference(ours, peers.exact(problem))
    peers.clear()
    best = sorted(trial, key=trial.__getitem__)[:_BEST]
    functions |= {name: peers.start(name, problem) for name in best}
  for name, value in apart.items():
    if not value < APART:
      raise ValueError(
          f"{', '.join(case.parts)}: the sum of clipped gradients by {name} is"
          f" {value:.3g} from float64's"
      )
  logging.info("%s: trial %s, apart %s", ", ".join(case.parts), trial, apart)
  turns = harness.interleaved(functions, options)
  return _case_result(case, turns, trial, apart)


def _arrays(examples: sampling.Examples) -> shared_problem.Examples:
  return np.asarray(examples.images), np.asarray(examples.labels)


def _case_result(case, turns, trial, apart):
  times = harness.summaries(turns, case.tasks)
  work = case.operations * case.tasks
  ratios = {
      "ours_to_floor": harness.ratio(
          turns["ours"],
          turns["product"],
          scale=2.0 * _PRODUCTS * _SIDE**3 / work,
      )
  }
  peers = [name for name in turns if name in trial]
  best = min(peers, key=lambda n: times[n]["seconds"], default=None)
  if best is not None:
    ratios["torch_to_ours"] = harness.ratio(turns[best], turns["ours"])
  return {
      "settings": case._asdict() | {"tasks": case.tasks},
      "operations": case.operations,
      "per_task": {n: t for n, t in times.items() if n != "product"},
      "trial_seconds": trial,
      "best": best,
      "relative_difference_of_sums": apart,
      "ratios": ratios,
  }


def measure(options: harness.Options) -> harness.Found:
  """Every case that is asked for, and the worst of each learner and width."""
  cases, found = chosen(options), {}
  product = _product()
  with workers.started() as pools:
    for case in cases:
      name = ", ".join(case.parts)
      found[name] = measure_case(case, pools, product, options)
      logging.info("%s: %s", name, _said(found[name]))
  return harness.Found(
      settings={
          "microbatch_size": private.Compute().microbatch_size,
          "devices": jax.device_count(),
          "cores": workers.CORES,
          "skipped": "" if pools else workers.SKIPPED,
      },
      cases={
          f"{name}, {program}": times
          for name, one in found.items()
          for program, times in one["per_task"].items()
      },
      rows=list(rows(cases, found)),
      more=found,
  )


def _said(one: Mapping[str, Any]) -> str:
  """A case in one line."""
  ours, ratios = one["per_task"]["ours"], one["ratios"]
  said = (
      f"{1e3 * ours['seconds']:.3g} ms a task (processor"
      f" {1e3 * ours['cpu_seconds']:.3g}), of the floor"
  )
  for key, start in (("ours_to_floor", ""), ("torch_to_ours", f"; {one['best']}"
                                             " / ours")):
    if key in ratios:
      ratio = ratios[key]
      said += (
          f"{start} {ratio['median']:.3g} (processor {ratio['cpu_median']:.3g})"
      )
  return said


def rows(
    cases: Sequence[Case], found: Mapping[str, Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
  """The worst case of every learner and width, by either ratio."""
  for learner, width in dict.fromkeys((c.learner, c.width) for c in cases):
    some = {
        ", ".join(case.parts[2:]): found[", ".join(case.parts)]
        for case in cases
        if (case.learner, case.width) == (learner, width)
    }
    what = f"{learner}, Conv4-{width}"
    ratios = {n: one["ratios"].get("torch_to_ours") for n, one in some.items()}
    if all(ratios.values()):
      worst = min(ratios, key=lambda n: ratios[n]["median"])
      yield harness.row(
          f"{what}: best PyTorch way / ours, the least of {len(some)} cases",
          ratios[worst],
          at_least=FASTER if width >= CASES[0].width else None,
          unit="×",
          note=f"{worst}; {some[worst]['best']}",
      )
    ratios = {n: one["ratios"]["ours_to_floor"] for n, one in some.items()}
    worst = max(ratios, key=lambda n: ratios[n]["median"])
    milliseconds = 1e3 * some[worst]["per_task"]["ours"]["seconds"]
    yield harness.row(
        f"{what}: ours / the floor, the most of {len(some)} cases",
        ratios[worst],
        at_most=TO_FLOOR if width >= WIDE else None,
        unit="×",
        note=f"{worst}; {milliseconds:.3g} ms a task",
    )


def _product() -> Callable[[], Any]:
  """Some products of large float32 matrices, on all cores."""
  product = jax.jit(jnp.dot)
  a = jnp.full((_SIDE, _SIDE), 0.5, jnp.float32)
  return lambda: [product(a, a) for _ in range(_PRODUCTS)]
