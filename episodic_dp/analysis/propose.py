"""Propose tasks per step, steps, queries and a clip norm for an epsilon.

The candidates lie around a config, and the accountant finds the noise
multiplier z with which each spends the epsilon. A proposal rests on public
facts alone: the config, the numbers of units of the training data, and
gradients of tasks of the validation split, which is public by assumption.

Score. In units of the clip norm let v be the clipped gradient of a task and f
the share of the sampled tasks that can be filled. The noised mean of L of them
in d dimensions has the squared length

    f^2 |E v|^2                         signal,
    (f E|v|^2 - f^2 |E v|^2) / L        from the choice of tasks,
    d z^2 / L^2                         noise.

Let c^2 be the share of the signal in the sum. A step along g, of rate r, on a
function of smoothness M gains r |E g|^2 - M r^2 E|g|^2 / 2; at the best rate
this is |E g|^2 c^2 / 2M, which is c^2 times the gain of a step without noise.
(With batches alone this is the noise scale of McCandlish et al., "An Empirical
Model of Large-Batch Training", 2018.) The score of T steps is therefore

    T c^2,  "effective steps",

the number of steps without noise that would get about as far. Where noise
dominates, z grows with the square root of T, and more steps gain nothing. The
score compares plans of one learner and network. It does not predict accuracy,
nor how gradients change while a network learns.

|E v|^2 is estimated without bias from n public tasks,

    (|sum v|^2 - sum |v|^2) / (n (n - 1)).
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
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
from episodic_dp import data
from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.config import solving
from episodic_dp.errors import PlanError
from episodic_dp.models.model import Params
from episodic_dp.output import phases
from episodic_dp.output import tables
from episodic_dp.plan import stages
from episodic_dp.plan import validation
from episodic_dp.private import state as state_lib
from episodic_dp.private import step as step_lib
from episodic_dp.run import Run

LEAST_SCORE = 5.0  # Effective steps below which a warning says so.
_TASKS = 256  # Tasks whose gradients are compared.
_WARM_STEPS = 10
_AT_ONCE = 64  # Tasks of a step of the warm start, and of one program.
_TASK_TIMES = (1 / 4, 1 / 2, 2, 4)  # Of the tasks a step of the config.
_QUERY_TIMES = (4, 2)  # Of its queries.
_CLIP_TIMES = (1, 1 / 4, 1 / 16)  # Of its clip norm.
# The config itself is kept unless its score is below this share of the best, by
# a step at least; more queries are tried only where this share of tasks has as
# many images.
_CLOSE = 0.8

Signal = tuple[float, float, int]  # |E v|^2, E|v|^2 and d.


# Signal -----------------------------------------------------------------------


def shares(
    signal: Signal, *, tasks: float, noise_multiplier: float, filled: float = 1
) -> np.ndarray:
  """Return the shares of a noised mean's squared length, which sum to 1.

  Args:
    signal: the signal of one task.
    tasks: L, the expected tasks of a step.
    noise_multiplier: z, of the gradients.
    filled: f, the share of tasks that do not lack examples.

  Returns:
    float64[3]: signal, choice of tasks, noise.
  """
  mean, size, parameters = signal
  common = filled**2 * mean
  parts = np.asarray([
      common,
      max(filled * size - common, 0.0) / tasks,
      parameters * (noise_multiplier / tasks) ** 2,
  ])
  return parts / parts.sum()


def clipped_sums(
    learner: learners.Learner, clip_norms: Sequence[float]
) -> Callable[
    [training.evaluation.Tasks, Params], tuple[np.ndarray, np.ndarray]
]:
  """Make a function that sums clipped gradients of tasks, compiled once.

  Returns:
    (tasks, params) -> float32[norms, d], the sums of the gradients in units of
    each clip norm, and float32[norms], the sums of their squared lengths. A
    gradient that is not finite adds nothing.
  """
  norms = jnp.asarray(clip_norms, jnp.float32)[:, None]

  @functools.partial(backends.jit, static_argnums=(3, 4))
  def sums(params, keys, images, episode, targets):
    def add(totals, task):
      key, images = task
      batch = sampling.make_episode(key, images, episode, targets=targets)
      _, gradient = step_lib.task_gradient(
          learner, params, batch, jax.random.fold_in(key, 0)
      )
      flat = flatten_util.ravel_pytree(gradient)[0].astype(jnp.float32)
      norm = jnp.linalg.norm(flat)
      clipped = flat[None] / jnp.maximum(norm, norms)
      clipped = jnp.where(jnp.isfinite(norm), clipped, 0)
      return (
          totals[0] + clipped, totals[1] + jnp.square(clipped).sum(1)
      ), None

    size = flatten_util.ravel_pytree(params)[0].size
    return lax.scan(
        add,
        (jnp.zeros((len(norms), size)), jnp.zeros(len(norms))),
        (keys, images),
    )[0]

  def of_tasks(tasks, params):
    parts = []
    for first in range(0, len(tasks.rows), _AT_ONCE):
      some = slice(first, first + _AT_ONCE)
      images = jnp.asarray(tasks.images[tasks.rows[some]])
      parts.append(jax.device_get(
          sums(params, tasks.keys[some], images, tasks.episode, tasks.targets)
      ))
    totals, squares = zip(*parts)
    return sum(totals), sum(squares)

  return of_tasks


def signals(totals: np.ndarray, squares: np.ndarray, count: int) -> np.ndarray:
  """Return |E v|^2 and E|v|^2 from the sums of `clipped_sums`.

  Args:
    totals: [..., norms, d].
    squares: [..., norms].
    count: n, the tasks of a sum.

  Returns:
    float64[2, norms], means over the leading axes.
  """
  lengths = np.square(totals.astype(float)).sum(-1)
  means = (lengths - squares) / (count * (count - 1))
  found = np.stack([np.maximum(means, 0), squares / count])
  return found.reshape(2, -1, found.shape[-1]).mean(1)


def measure(
    config: Run, public: data.Dataset
) -> list[tuple[dict[str, Any], Signal]]:
  """Take gradients of public tasks, before and after a short warm start.

  Args:
    config: config with the learner, network, optimiser and task size.
    public: the validation split.

  Returns:
    Pairs (changes of the clip norm, signal); the first has no change. A signal
    is the mean of those at the initial parameters and after steps without
    noise. Other norms are tried for Adam only, which removes the scale of
    gradients.
  """
  backends.use_all_cores()
  learner, _ = config.make_learners(public.image_shape, public)
  clip_norms = [config.mechanism.clip_norm]
  if config.optimizer.name == "adam":
    clip_norms = [clip_norms[0] * scale for scale in _CLIP_TIMES]
  # A learner's annealed numbers have their initial values.
  sums_of = clipped_sums(
      learner.at_step(jnp.zeros((), jnp.int32)), clip_norms
  )
  episode = config.release.plan.task_form
  size = config.task | dict(
      way=episode.way, shot=episode.shot, query=episode.query
  )
  draw = functools.partial(training.sample_tasks, public, **size)
  try:
    tasks = draw(count=_TASKS, seed=0)
  except PlanError as e:
    raise PlanError(
        "plan takes gradients of public tasks as large as those of training,"
        " and the validation split cannot fill one: give it larger units, or"
        " use episodic-dp calibrate"
    ) from e
  params = learner.init(jax.random.key(config.seed))
  optimizer = state_lib.make_optimizer(
      dataclasses.replace(config.optimizer, warm_up=0), _WARM_STEPS
  )
  state = optimizer.init(params)
  flat, unravel = flatten_util.ravel_pytree(params)
  start = sums_of(tasks, params)
  for step in range(_WARM_STEPS):
    (total, *_), _ = sums_of(draw(count=_AT_ONCE, seed=1 + step), params)
    mean = unravel(jnp.asarray(total / _AT_ONCE, flat.dtype))
    updates, state = optimizer.update(mean, state, params)
    params = optax.apply_updates(params, updates)
  totals, squares = map(np.stack, zip(start, sums_of(tasks, params)))
  means, sizes = signals(totals, squares, _TASKS).tolist()
  options = []
  for norm, mean, length in zip(clip_norms, means, sizes, strict=True):
    options.append(({"mechanism.clip_norm": norm}, (mean, length, flat.size)))
  return options


# The candidates ---------------------------------------------------------------


def check(config: Run) -> None:
  """Refuse configs that this score does not describe.

  Raises:
    PlanError: single examples are learned, or gradients clipped by layer.
    UnsoundPlanError: the clip norm reads private gradients without noise.
  """
  release = config.release
  report.refuse_un_noised(release.mechanism)
  if not release.sums_tasks:
    raise PlanError(
        "plan compares steps of whole tasks, and the clip unit of this config"
        f" is one {release.mechanism.clip_unit}: use episodic-dp calibrate"
    )
  if release.mechanism.clip_by != "global":
    raise PlanError(
        f"plan measures the norm of whole gradients, and clip_by is"
        f" '{release.mechanism.clip_by}': give clip_by='global' (in a command"
        " --config.mechanism.clip_by=global)"
    )


def with_tasks(config: Run, times: float) -> dict[str, Any]:
  """Return the changes of a config for more tasks a step.

  Raises:
    PlanError: the data have too few tasks for such steps.
  """
  first, *others = config.release.plan.stages
  episode = config.release.plan.episode
  if episode is not None and episode.tasks is not None:
    return {"plan.episode.tasks": max(1, round(times * episode.tasks))}
  if isinstance(first, plan_lib.Poisson):
    first = plan_lib.Poisson(float(f"{first.p * times:.4g}"))
  elif isinstance(first, plan_lib.FixedSize):
    first = plan_lib.FixedSize(round(first.n * times))
  elif isinstance(first, plan_lib.RandomAllocation):
    first = plan_lib.RandomAllocation(max(1, round(first.steps / times)))
  else:
    raise PlanError(f"{first} takes every task in each step")
  return {"plan.stages": tuple(map(stages.stage_text, (first, *others)))}


def more_queries(
    config: Run, public: plan_lib.Hierarchy
) -> dict[str, Any]:
  """Return the changes of a config for more query examples of a class.

  The result is empty unless each task belongs to one person and the images
  suffice; more queries then cost no privacy.

  Args:
    config: the config to change.
    public: tree of the validation split.
  """
  *upper, last = config.release.plan.stages
  episode = config.release.plan.task_form
  if episode.form != "unit" or not isinstance(last, plan_lib.FixedSize):
    return {}
  for times in _QUERY_TIMES:
    query = times * episode.query
    last = plan_lib.FixedSize(episode.shot + query)
    changes = {
        "plan.stages": tuple(map(stages.stage_text, (*upper, last))),
        "plan.episode.query": query,
    }
    size = config.task | dict(way=episode.way, shot=episode.shot, query=query)
    try:
      validation.task_plan(public, **size)
      changed = config.replace(changes).resolved()
    except PlanError:
      continue
    if changed.release.filled >= _CLOSE * config.release.filled:
      return changes
  return {}


def make_rows(
    config: Run,
    options: Sequence[tuple[dict[str, Any], Signal]],
    **wanted: Any,
) -> list[dict[str, Any]]:
  """Return candidates; the one to take is the first that is near the best.

  Args:
    config: config with the learner, data and sampler.
    options: pairs (changes of queries and clip norm, signal); the first has no
      change, and a later one is preferred only if it is clearly better.
    **wanted: "epsilon", "level" and "neighbours", as for `solving.calibrate`.

  Returns:
    Rows of the config itself, of the best option, of the other options, and of
    the best with other numbers of tasks per step and the same tasks in total.
    Each has "tasks" (expected of a step), "steps", "queries", "clip_norm",
    "noise_multiplier", "epsilon" (spent, at most the wanted one), "filled"
    (share of the tasks), "shares" (of a step's squared length: signal, choice
    of tasks, noise), "effective_steps" (the score) and "changes" (name ->
    value, of the config).

  Raises:
    PlanError: epsilon cannot be reached.
    UnsoundPlanError: the level has no guarantee.
  """

  def row(changes: dict[str, Any], signal: Signal) -> dict[str, Any]:
    changed = config.replace(changes)
    found = solving.calibrate(changed, **wanted)
    noise = {"mechanism.noise_multiplier": found.noise_multiplier}
    changed = changed.replace(noise)
    parts = shares(
        signal, tasks=found.per_step, filled=changed.release.filled,
        noise_multiplier=changed.mechanism.gradient_noise_multiplier,
    )
    return {
        "tasks": found.per_step,
        "steps": found.steps,
        "queries": changed.plan.task_form.query,
        "clip_norm": changed.mechanism.clip_norm,
        "noise_multiplier": found.noise_multiplier,
        "epsilon": found.epsilon,
        "filled": changed.release.filled,
        "shares": parts.tolist(),
        "effective_steps": found.steps * float(parts[0]),
        "changes": changes | noise | {"steps": found.steps},
    }

  rows = [row(*option) for option in options]
  own, best = rows[0], choose(rows)
  changes, signal = options[rows.index(best)]
  rows.sort(key=lambda found: found not in (own, best))
  for times in _TASK_TIMES:
    steps = {"steps": max(1, round(config.steps / times))}
    try:
      more = with_tasks(config.replace(changes), times) | steps
      rows.append(row(changes | more, signal))
    except PlanError:
      continue  # The data have no steps of that many tasks.
  return rows


def choose(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
  """Return the first row that is near the best."""
  best = max(row["effective_steps"] for row in rows)
  near = min(_CLOSE * best, best - 1)
  return next(row for row in rows if row["effective_steps"] >= near)


def limit(row: dict[str, Any]) -> str:
  """Say in one line what limits a candidate, and what would help."""
  if row["filled"] < _CLOSE:
    lack = 100 * (1 - row["filled"])
    return (
        f"images: {lack:.0f} % of the tasks of a step lack some; take fewer"
        " queries or shots, or more images of each class"
    )
  share, text = max(zip(row["shares"], (
      "steps: {:.0f} % of a step is signal; more steps help",
      "people in a step: their choice is {:.0f} % of a step; more people help",
      "people and epsilon: noise is {:.0f} % of a step; more people or a larger"
      " epsilon help, more steps hardly",
  )))
  return text.format(100 * share)


# The proposal -----------------------------------------------------------------


def propose(
    config: Run,
    *,
    epsilon: float,
    level: str | None = None,
    neighbours: report.Relation = "add-or-remove",
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
) -> dict[str, Any]:
  """Propose tasks per step, steps, queries and a clip norm for an epsilon.

  Args:
    config: config with the sampler, data and learner.
    epsilon: the target, above 0.
    level: the privacy unit; None for `config.level`.
    neighbours: the relation for which epsilon holds.
    data_dir: folder of the data sets that are not built in, or own data.
    download: whether to fetch files that data_dir lacks.

  Returns:
    "target_epsilon", "delta", "level", "neighbours", "caveat", "public_tasks",
    "parameters", "rows" of `make_rows`, each with whether it is "chosen"; and
    for the chosen one "limit", the text of `limit`, and "flags".

  Raises:
    PlanError: something is missing, out of range or cannot be reached.
    UnsoundPlanError: the level has no guarantee.
    DataError, FileNotFoundError: the data cannot be read.
  """
  level = level or config.level
  _validate.positive("epsilon", epsilon)
  config.check_complete()
  check(config)
  stated = accounting.guarantee(
      config.release, steps=1, delta=config.delta, level=level,
      neighbours=neighbours,
  )
  public = config.data.load(
      data_dir=data_dir, download=download
  ).validation
  more = more_queries(config, public.hierarchy)
  with phases.phase("taking gradients of public tasks"):
    options = measure(config, public)
    if more:
      for changes, signal in measure(config.replace(more), public):
        options.append((more | changes, signal))
  with phases.phase("calibrating the noise"):
    rows = make_rows(
        config, options, epsilon=epsilon, level=level, neighbours=neighbours
    )
  chosen = choose(rows)
  flags = []
  for name, value in chosen["changes"].items():
    if isinstance(value, tuple):
      value = f'"{value}"'
    flags.append(f"--config.{name}={value}")
  return {
      "target_epsilon": epsilon,
      "delta": config.delta,
      "level": level,
      "neighbours": neighbours,
      "caveat": stated.caveat,
      "public_tasks": _TASKS,
      "parameters": options[0][1][2],
      "rows": [row | {"chosen": row is chosen} for row in rows],
      "limit": limit(chosen),
      "flags": flags,
  }


def table(result: dict[str, Any]) -> str:
  """Format the result of `propose` as a table, with its inputs."""
  score, rows = 0.0, []
  for row in result["rows"]:
    note = ""
    if row is result["rows"][0]:
      note = "as configured"
    if row["chosen"]:
      note += " chosen"
      score = row["effective_steps"]
    rows.append((
        f"{row['tasks']:.4g}", row["steps"], row["queries"],
        f"{row['clip_norm']:.4g}", f"{row['noise_multiplier']:.4g}",
        report.rounded_up(row["epsilon"]), f"{100 * row['shares'][0]:.0f} %",
        f"{row['effective_steps']:.1f}", note,
    ))
  lines = [
      f"Public tasks: {_TASKS} of the validation split, with gradients of"
      f" {result['parameters']} entries.",
      "Private data were not used.",
      "",
      tables.text((
          "tasks a step", "steps", "queries", "clip norm", "noise multiplier",
          "epsilon", "signal of a step", "effective steps", "",
      ), rows),
      "",
      f"Epsilon is that of one {result['level']} at delta"
      f" {result['delta']:g} ({result['neighbours']}).",
      "Effective steps are the steps without noise that would get about as far;"
      " they compare plans of one learner.",
      f"What limits: {result['limit']}.",
  ]
  if score < LEAST_SCORE:
    lines.append(
        f"Fewer than {LEAST_SCORE:g} effective steps teach little: take a"
        " larger epsilon, or more people and tasks."
    )
  if result["caveat"]:
    lines.append(result["caveat"])
  return "\n".join(lines)
