"""Propose tasks per step, steps and noise for an epsilon and a budget.

A budget of B tasks makes T = B / L steps of L tasks. The accountant finds the
noise multiplier z that spends the epsilon. The signal of a step then follows
from the alignment of single tasks' gradients, measured on public tasks.

Score. In units of the clip norm a clipped gradient has a mean of squared norm
s^2 and a variance of 1 - s^2 about it. The noised mean of L gradients in d
dimensions has the squared norm

    s^2                      signal, the same in every step of this size,
    (1 - s^2) / L            from the choice of tasks,
    d z^2 / L^2              noise.

Let c^2 be the share of s^2 in the sum. A step along g, of rate r, on a function
of smoothness M gains r |E g|^2 - M r^2 E|g|^2 / 2; at the best rate this is
|E g|^2 c^2 / 2M, which is c^2 times the gain of a step without noise. (With
batches alone this is the noise scale of McCandlish et al., "An Empirical Model
of Large-Batch Training", 2018.) Momentum and averages of the iterates change
the best rate, not the signal that they average. The score is therefore

    T c^2,  "effective steps",

the number of steps without noise that would make about the same progress. For a
fixed number of tasks it is largest near L = z sqrt(d) / s, and below that where
z itself grows with L. It compares plans for one learner and network. It does
not predict accuracy, nor how the alignment changes while a network learns.

Alignment. The signal is the agreement of single tasks' gradients, measured on
public tasks. Every task's gradient g_i is taken at the same parameters, and
u_i = g_i / |g_i| is its direction. The squared alignment s^2 is the mean of
u_i . u_j over pairs of different tasks,

    s^2 = (n |mean u|^2 - 1) / (n - 1),

an unbiased estimate of |E u|^2. The tasks are from the validation split, which
a config declares public.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
import os
from typing import Any

import jax
from jax import flatten_util
from jax import lax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import _validate
from episodic_dp import accounting
from episodic_dp import backends
from episodic_dp import errors
from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.config import solving
from episodic_dp.output import phases
from episodic_dp.output import tables
from episodic_dp.plan import stages
from episodic_dp.private import state as state_lib
from episodic_dp.private import step as step_lib

BUDGET = 100_000  # Default number of tasks.
# Fewer steps are not proposed, whatever their signal: in
# experiments/results/budget.json 15 steps stay 7 points behind 60.
LEAST_STEPS = 10
LEAST_SCORE = 5.0  # Effective steps below which the table has a warning.
_TASKS = 256  # Tasks whose gradients are compared.
_WARM_STEPS = 10
_AT_ONCE = 64  # Tasks of a step of the warm start.
_CANDIDATES = 9  # Tasks a step that are tried.
_SHOWN = 0.5  # Rows whose score is below this share of the best are left out.


# Signal -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
  """The agreement of tasks' gradients at some parameters.

  Attributes:
    squared: s^2, never below 0.
    norms: float64[tasks], norms of the gradients that are finite and not 0.
    parameters: d, the number of entries of a gradient.
  """

  squared: float
  norms: np.ndarray
  parameters: int


def align(total: np.ndarray, norms: np.ndarray) -> Alignment:
  """Return the alignment for a sum of directions.

  Args:
    total: float[d].
    norms: float[tasks] of all gradients, 0 for one without a direction.
  """
  real, total = norms[norms > 0].astype(float), total.astype(float)
  n = len(real)
  squared = float((total @ total - n) / max(n * (n - 1), 1))
  return Alignment(
      squared=max(squared, 0.0), norms=real, parameters=len(total)
  )


def signal_share(
    measured: Sequence[Alignment],
    *,
    clip_norm: float,
    tasks: float,
    noise_multiplier: float,
) -> float:
  """Return the share of a noised mean's squared norm that is signal.

  A gradient in units of C has the norm a = min(1, |g| / C). The norm and the
  direction of a task's gradient are assumed to be independent.

  Args:
    measured: alignments to average, since they change while a network learns.
    clip_norm: C.
    tasks: L, the expected tasks of a step.
    noise_multiplier: z, of the gradients.
  """
  lengths = [np.minimum(1.0, one.norms / clip_norm) for one in measured]
  signals = [
      one.squared * length.mean() ** 2 for one, length in zip(measured, lengths)
  ]
  signal = np.mean(signals)
  spread = np.mean([np.square(length).mean() for length in lengths]) - signal
  noise = measured[0].parameters * (noise_multiplier / tasks) ** 2
  total = signal + max(spread, 0.0) / tasks + noise
  return float(signal / total) if total else 0.0


def clip_norm(*measured: Alignment) -> float:
  """Return a norm below those of nine tasks of ten, rounded to two digits.

  Noise is in units of the clip norm. A norm below the gradients' keeps the
  whole signal. A smaller norm loses nothing with an optimiser that ignores the
  scale, such as Adam.

  Raises:
    PlanError: the gradients do not agree.
  """
  if not all(m.squared > 0 and m.norms.size for m in measured):
    raise errors.PlanError(
        "the public tasks' gradients do not agree: check the learner"
        " and its rates"
    )
  least = min(np.quantile(m.norms, 0.1) for m in measured)
  scale = 10.0 ** (1 - math.floor(math.log10(least)))
  return float(f"{math.floor(least * scale) / scale:.2g}")


def task_gradients(
    learner: learners.Learner,
) -> Callable[[training.evaluation.Tasks, Any], tuple[np.ndarray, np.ndarray]]:
  """Make a function that sums the gradients of tasks, compiled once.

  Returns:
    (tasks, params) -> float32[2, d], the sums of directions and of gradients,
    and the norms float32[tasks]. A gradient that is 0 or not finite has norm 0
    and adds nothing.
  """

  @functools.partial(jax.jit, static_argnums=(3, 4))
  def sums(params, keys, images, episode, targets):
    def add(totals, task):
      key, images = task
      batch = sampling.make_episode(key, images, episode, targets=targets)
      _, gradient = step_lib.task_gradient(
          learner, params, batch, jax.random.fold_in(key, 0)
      )
      flat = flatten_util.ravel_pytree(gradient)[0].astype(jnp.float32)
      norm = jnp.linalg.norm(flat)
      real = jnp.isfinite(norm) & (norm > 0)
      flat, norm = jnp.where(real, flat, 0), jnp.where(real, norm, 0)
      direction = flat / jnp.where(real, norm, 1)
      return totals + jnp.stack([direction, flat]), norm

    size = flatten_util.ravel_pytree(params)[0].size
    return lax.scan(add, jnp.zeros((2, size)), (keys, images))

  def of_tasks(tasks, params):
    images = jnp.asarray(tasks.images[tasks.rows])
    return jax.device_get(
        sums(params, tasks.keys, images, tasks.episode, tasks.targets)
    )

  return of_tasks


def measure(
    config: RunConfig,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
) -> tuple[Alignment, Alignment]:
  """Take gradients of public tasks, before and after a short warm start.

  Args:
    config: config with the learner, network, optimiser and size of tasks.
    data_dir: folder of the data sets that are not built in, or own data.
    download: whether to fetch files that data_dir lacks.

  Returns:
    The alignment at the initial parameters, and after steps without noise.

  Raises:
    ValueError, FileNotFoundError: the data cannot be read.
  """
  backends.use_all_cores()
  public = build.load_data(
      config, data_dir=data_dir, download=download
  ).validation
  learner, _ = build.make_learners(config, public.image_shape)
  # A learner's annealed numbers have their initial values.
  sums_of = task_gradients(learner.at_step(jnp.zeros((), jnp.int32)))
  episode = config.release.plan.episode
  assert episode is not None  # `check`.
  draw = functools.partial(
      training.sample_tasks, public, way=episode.way, shot=episode.shot,
      query=episode.query,
  )
  tasks = draw(count=_TASKS, seed=0)
  params = learner.init(jax.random.key(config.seed))
  sums, norms = sums_of(tasks, params)
  start = align(sums[0], norms)
  optimizer = state_lib.make_optimizer(
      dataclasses.replace(config.optimizer, warm_up=0), _WARM_STEPS
  )
  state = optimizer.init(params)
  flat, unravel = flatten_util.ravel_pytree(params)
  for step in range(_WARM_STEPS):
    others = draw(count=_AT_ONCE, seed=1 + step)
    sums, _ = sums_of(others, params)
    mean = unravel(jnp.asarray(sums[1] / _AT_ONCE, flat.dtype))
    updates, state = optimizer.update(mean, state, params)
    params = optax.apply_updates(params, updates)
  sums, norms = sums_of(tasks, params)
  return start, align(sums[0], norms)


# The grid ---------------------------------------------------------------------


def check(config: RunConfig) -> None:
  """Refuse configs that this score does not describe.

  Raises:
    PlanError: single examples are learned, or gradients clipped by layer.
    UnsoundPlanError: the clip norm depends on private gradients without noise.
  """
  release = config.release
  report.refuse_un_noised(release.mechanism)
  if release.plan.episode is None or release.mechanism.noisy_inner_steps:
    raise errors.PlanError(
        "plan compares steps of whole tasks, but the clip unit of this config"
        f" is one {release.mechanism.clip_unit}: use episodic-dp calibrate"
    )
  if release.mechanism.clip_by != "global":
    raise errors.PlanError(
        f"plan measures the norm of whole gradients, but clip_by="
        f"'{release.mechanism.clip_by}': give --config.mechanism.clip_by="
        "global"
    )


def with_tasks(config: RunConfig, tasks: float) -> dict[str, Any]:
  """Return the changes of a config that give about this many tasks a step.

  Raises:
    PlanError: the first stage is All().
  """
  release = config.release
  first, *others = release.plan.stages
  episode = release.plan.episode
  assert episode is not None  # `check`.
  factor = tasks / plan_lib.tasks_per_step(release.hierarchy, release.plan)
  if episode.form == "independent":
    return {"episode.tasks": max(1, round(tasks))}
  if isinstance(first, plan_lib.Poisson):
    first = plan_lib.Poisson(float(f"{first.p * factor:.4g}"))
  elif isinstance(first, plan_lib.FixedSize):
    way = episode.way if episode.form == "disjoint" else 1
    first = plan_lib.FixedSize(way * max(1, round(first.n * factor / way)))
  elif isinstance(first, plan_lib.RandomAllocation):
    first = plan_lib.RandomAllocation(max(1, round(first.steps / factor)))
  else:
    raise errors.PlanError(f"{first} uses every task in each step")
  return {"plan.stages": tuple(map(stages.stage_text, (first, *others)))}


def make_rows(
    config: RunConfig,
    measured: Sequence[Alignment],
    *,
    budget: int,
    clip_norm: float,
    **wanted: Any,
) -> list[dict[str, Any]]:
  """Return ways to spend a budget, by ascending tasks per step.

  Args:
    config: config with the learner, data and sampler.
    measured: alignments on public tasks.
    budget: tasks of all steps together.
    clip_norm: clip norm of the gradients.
    **wanted: "epsilon" and "level", as for `solving.calibrate`.

  Returns:
    Rows of "tasks" (expected of a step), "steps", "noise_multiplier",
    "epsilon" (spent, at most the target), "signal_share" (of a step's squared
    norm), "effective_steps" (the score) and "changes" (name -> value, of the
    config).

  Raises:
    PlanError: no step of the budget fits the data.
    UnsoundPlanError: the level has no guarantee.
  """
  sizes = [n * 10**power for power in range(9) for n in (1, 2, 5)]
  # For z = 1, noise is as large as signal here.
  signal = np.mean([one.squared for one in measured])
  guess = math.sqrt(measured[0].parameters / signal)
  sizes = [size for size in sizes if size <= budget // LEAST_STEPS]
  sizes.sort(key=lambda size: abs(math.log(size / guess)))
  rows: list[dict[str, Any]] = []
  for size in sizes:
    try:
      changes = with_tasks(config, size) | {
          "steps": budget // size,
          "mechanism.noise_multiplier": 1.0,
          "mechanism.clip_norm": clip_norm,
      }
      changed = config.with_changes(changes)
      plan_lib.validate(changed.release.hierarchy, changed.release.plan)
    except errors.PlanError:
      continue  # The data have no steps with this number of tasks.
    found = solving.calibrate(changed, **wanted)
    changes["mechanism.noise_multiplier"] = found.noise_multiplier
    mechanism = config.with_changes(changes).release.mechanism
    share = signal_share(
        measured, clip_norm=clip_norm, tasks=found.per_step,
        noise_multiplier=mechanism.gradient_noise_multiplier,
    )
    rows.append({
        "tasks": found.per_step,
        "steps": found.steps,
        "noise_multiplier": found.noise_multiplier,
        "epsilon": found.epsilon,
        "signal_share": share,
        "effective_steps": found.steps * share,
        "changes": changes,
    })
    if len(rows) == _CANDIDATES:
      break
  if not rows:
    raise errors.PlanError(
        f"no step of a budget of {budget} tasks fits the first stage"
        f" {config.release.plan.stages[0]}: use Poisson(p) or FixedSize(n) and,"
        f" with at least {LEAST_STEPS} steps, a larger --tasks"
    )
  best = max(row["effective_steps"] for row in rows)
  rows = [row for row in rows if row["effective_steps"] >= _SHOWN * best]
  return sorted(rows, key=lambda row: row["tasks"])


# The proposal -----------------------------------------------------------------


def propose(
    config: RunConfig,
    *,
    epsilon: float,
    level: str | None = None,
    tasks: int = BUDGET,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
) -> dict[str, Any]:
  """Propose tasks per step, steps, noise and clip norm for an epsilon.

  Args:
    config: config with the sampler, data and learner.
    epsilon: the target, not to be exceeded; above 0.
    level: the level of the guarantee; None for `config.level`.
    tasks: number of tasks of all steps together.
    data_dir: folder of the data sets that are not built in, or own data.
    download: whether to fetch files that data_dir lacks.

  Returns:
    "target_epsilon", "delta", "level", "caveat", "clip_norm", "public_tasks",
    "parameters", "squared_alignment" ("start" and "warm"), "rows" of
    `make_rows`, each with the flag "chosen", and "flags" for the chosen row.

  Raises:
    PlanError: something is missing, out of range or cannot be reached.
    UnsoundPlanError: the level has no guarantee.
    ValueError, FileNotFoundError: the data cannot be read.
  """
  level = level or config.level
  _validate.positive("epsilon", epsilon)
  _validate.count("--tasks", tasks, LEAST_STEPS)
  config.check_complete()
  check(config)
  stated = accounting.guarantee(
      config.release, steps=1, delta=config.delta, level=level
  )
  with phases.phase("taking gradients of public tasks"):
    measured = measure(config, data_dir=data_dir, download=download)
  norm = clip_norm(*measured)
  with phases.phase("calibrating the noise"):
    rows = make_rows(
        config, measured, budget=tasks, clip_norm=norm, epsilon=epsilon,
        level=level,
    )
  start, warm = measured
  return {
      "target_epsilon": epsilon,
      "delta": config.delta,
      "level": level,
      "caveat": stated.caveat,
      "clip_norm": norm,
      "public_tasks": _TASKS,
      "parameters": warm.parameters,
      "squared_alignment": {"start": start.squared, "warm": warm.squared},
      **choose(rows),
  }


def choose(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
  """Mark the row with the most effective steps, and add its flags."""
  best = max(rows, key=lambda row: row["effective_steps"])
  flags = [
      f'--config.{name}="{value}"' if isinstance(value, tuple)
      else f"--config.{name}={value}"
      for name, value in best["changes"].items()
  ]
  marked = [row | {"chosen": row is best} for row in rows]
  return {"rows": marked, "flags": flags}


def table(result: dict[str, Any]) -> str:
  """Format the result of `propose` as a table, with its basis."""
  agree = result["squared_alignment"]
  rows = [
      (
          f"{row['tasks']:.4g}", row["steps"],
          f"{row['noise_multiplier']:.4g}", report.rounded_up(row["epsilon"]),
          f"{100 * row['signal_share']:.0f} %",
          f"{row['effective_steps']:.1f}", "chosen" * row["chosen"],
      )
      for row in result["rows"]
  ]
  lines = [
      f"Public tasks: {_TASKS} of the validation split; their gradients of"
      f" {result['parameters']} entries agree by"
      f" {math.sqrt(agree['start']):.3f} at the start and"
      f" {math.sqrt(agree['warm']):.3f} after {_WARM_STEPS} steps without"
      " noise.",
      f"Clip norm {result['clip_norm']:g}: nine of ten norms are larger."
      " Private data were not used.",
      "",
      tables.text((
          "tasks a step", "steps", "noise multiplier", "epsilon",
          "signal of a step", "effective steps", "",
      ), rows),
      "",
      f"Epsilon is of one {result['level']} at delta {result['delta']:g}, by"
      " the accountant; effective steps, the",
      "same progress without noise, compare plans of this one learner.",
  ]
  if max(row["effective_steps"] for row in result["rows"]) < LEAST_SCORE:
    lines.append(
        f"Fewer than {LEAST_SCORE:g} effective steps teach little: take a"
        " larger epsilon, or more participants and tasks."
    )
  if result["caveat"]:
    lines.append(result["caveat"])
  return "\n".join(lines)
