"""Propose tasks per step, steps and noise for an epsilon and a budget.

A budget of B tasks makes T = B / L steps of L tasks. The accountant finds the
noise multiplier z that spends the epsilon. The signal of a step then follows
from the alignment of single tasks' gradients, measured on public tasks.

Score. In units of the clip norm a clipped gradient has a mean of squared length
s^2 and a scatter of 1 - s^2 about it. The noised mean of L gradients in d
dimensions has the squared length

    s^2                      signal, the same in every step of this kind,
    (1 - s^2) / L            from the choice of tasks,
    d z^2 / L^2              noise.

Let c^2 be the share of s^2 in the sum. A step along g, of rate r, on a function
of smoothness M gains r |E g|^2 - M r^2 E|g|^2 / 2; at the best rate this is
|E g|^2 c^2 / 2M, which is c^2 times the gain of a step without noise. (With
batches alone this is the noise scale of McCandlish et al., "An Empirical Model
of Large-Batch Training", 2018.) Momentum and averages of the iterates change
the best rate, not the signal that they average. The score is therefore

    T c^2,  "effective steps",

the number of steps without noise that would get about as far. At a fixed number
of tasks it is largest near L = z sqrt(d) / s, and below that where z itself
grows with L. It compares plans of one learner and network. It does not predict
accuracy, nor how the alignment changes while a network learns.

Alignment. The signal that the noise of a private step meets is how well the
gradients of single tasks agree, measured on public tasks. Every task's
gradient g_i is taken at the same parameters, and u_i = g_i / |g_i| is its
direction. The squared alignment s^2 is the mean of u_i . u_j over pairs of
different tasks,

    s^2 = (n |mean u|^2 - 1) / (n - 1),

an unbiased estimate of |E u|^2. The tasks are of the validation split, which a
config declares public.
"""

from collections.abc import Sequence
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

from episodic_dp import accounting
from episodic_dp import backends
from episodic_dp import errors
from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.analysis import solving
from episodic_dp.config import build
from episodic_dp.config import learners as learners_lib
from episodic_dp.config import RunConfig
from episodic_dp.output import phases
from episodic_dp.output import tables
from episodic_dp.plan import stages
from episodic_dp.private import step as step_lib

_TASKS = 256  # Tasks whose gradients are compared.
_STEPS = 10  # Of the warm start.
_AT_ONCE = 64  # Tasks of one call, and of a step of the warm start.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
  """The agreement of tasks' gradients at some parameters.

  Attributes:
    squared: s^2, never below 0.
    norms: float64[tasks] of the finite gradients, in rising order.
    parameters: d, entries of a gradient.
  """

  squared: float
  norms: np.ndarray
  parameters: int

  def clipped(self, clip_norm: float) -> "Clipped":
    """Return the signal that is left where gradients are clipped to a norm.

    A gradient in units of C has the length a = min(1, |g| / C). The norm and
    the direction of a task's gradient are assumed to be independent.
    """
    length = np.minimum(1.0, self.norms / clip_norm)
    signal = self.squared * float(length.mean()) ** 2
    return Clipped(
        signal=signal,
        spread=max(float(np.square(length).mean()) - signal, 0.0),
        parameters=self.parameters,
    )

  def quantile(self, share: float) -> float:
    """Return the norm that this share of the tasks stays within."""
    return float(np.quantile(self.norms, share))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clipped:
  """A task's clipped gradient, in units of the clip norm.

  Attributes:
    signal: squared length of its mean.
    spread: mean squared distance from the mean.
    parameters: d, entries of a gradient.
  """

  signal: float
  spread: float
  parameters: int

  def share(self, tasks: float, noise_multiplier: float) -> float:
    """Return the share of a noised mean's squared length that is signal.

    Args:
      tasks: L, the expected tasks of a step.
      noise_multiplier: z, of the gradients.
    """
    noise = self.parameters * (noise_multiplier / tasks) ** 2
    total = self.signal + self.spread / tasks + noise
    return self.signal / total if total else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
  """Gradients of public tasks, before and after a short warm start.

  Attributes:
    tasks: number of tasks whose gradients were compared.
    start: at the initial parameters.
    warm: after `warm_steps` steps without noise on public tasks.
    warm_steps: of the warm start.
  """

  tasks: int
  start: Alignment
  warm: Alignment
  warm_steps: int

  def clipped(self, clip_norm: float) -> Clipped:
    """Return a clipped gradient halfway; see `halfway`."""
    return halfway(self.start.clipped(clip_norm), self.warm.clipped(clip_norm))


def halfway(start: Clipped, warm: Clipped) -> Clipped:
  """Average two places, since alignment changes while a network learns."""
  return dataclasses.replace(
      warm,
      signal=(start.signal + warm.signal) / 2,
      spread=(start.spread + warm.spread) / 2,
  )


class Gradients:
  """Sums of tasks' gradients and of their directions, compiled once.

  Args:
    learner: takes the gradients, as in a private step.
    tasks: public ones; a call takes some of them.
  """

  def __init__(self, learner: learners.Learner, tasks: training.Tasks):
    self._tasks = tasks
    # Annealed numbers of a learner are at their beginning.
    first = learner.at_step(jnp.zeros((), jnp.int32))
    one = functools.partial(_direction_and_gradient, first, tasks)
    chunk = math.gcd(backends.choices().microbatch_size, _AT_ONCE)

    @jax.jit
    def sums(params, keys, images):
      def add(total, some):
        found, norms = jax.vmap(functools.partial(one, params))(*some)
        return total + found.sum(0), norms

      size = sum(leaf.size for leaf in jax.tree.leaves(params))
      some = jax.tree.map(
          lambda x: x.reshape(-1, chunk, *x.shape[1:]), (keys, images)
      )
      total, norms = lax.scan(add, jnp.zeros((2, size)), some)
      return total, norms.ravel()

    self._sums = sums

  def __call__(
      self, params: Any, first: int, count: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Sum over the tasks `first`, `first + 1`, ... at some parameters.

    Returns:
      float32[2, d], the sums of directions and of gradients, and the norms
      float32[count], 0 for a gradient that is 0 or not finite: such a task adds
      nothing.
    """
    part = slice(first, first + count)
    images = self._tasks.images[self._tasks.rows[part]]
    total, norms = self._sums(
        params, self._tasks.keys[part], jnp.asarray(images)
    )
    return np.asarray(total), np.asarray(norms)

  def alignment(self, params: Any, count: int) -> Alignment:
    """Return the alignment of the first tasks, a multiple of 64."""
    parts = [
        self(params, first, _AT_ONCE) for first in range(0, count, _AT_ONCE)
    ]
    total = np.stack([sums[0] for sums, _ in parts]).astype(np.float64).sum(0)
    norms = np.concatenate([norms for _, norms in parts])
    return of_sum(total, norms)


def _direction_and_gradient(
    learner: learners.Learner,
    tasks: training.Tasks,
    params: Any,
    key: jax.Array,
    images: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Return a task's float32[2, d] and its norm; zeros if it is not finite."""
  batch = sampling.make_episode(
      key, images, tasks.episode, targets=tasks.targets
  )
  _, gradient = step_lib.task_gradient(
      learner, params, batch, jax.random.fold_in(key, 0)
  )
  flat, _ = flatten_util.ravel_pytree(gradient)
  flat = flat.astype(jnp.float32)
  norm = jnp.linalg.norm(flat)
  real = jnp.isfinite(norm) & (norm > 0)
  flat, norm = jnp.where(real, flat, 0), jnp.where(real, norm, 0)
  return jnp.stack([flat / jnp.where(real, norm, 1), flat]), norm


def of_sum(total: np.ndarray, norms: np.ndarray) -> Alignment:
  """Return the alignment of a sum of directions.

  Args:
    total: float64[d].
    norms: of all tasks' gradients, 0 for one without a direction.
  """
  real = norms[norms > 0].astype(np.float64)
  n = len(real)
  squared = float((total @ total - n) / max(n * (n - 1), 1))
  return Alignment(
      squared=max(squared, 0.0), norms=np.sort(real), parameters=len(total)
  )


def measure(
    config: RunConfig,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    tasks: int = _TASKS,
) -> Measured:
  """Take gradients of public tasks, before and after a short warm start.

  Args:
    config: whose learner, network, optimiser and size of task are taken.
    data_dir: folder of the data sets that are not built in, or own data.
    download: fetch the files that data_dir does not have.
    tasks: number of tasks whose gradients are compared, a multiple of 64.

  Raises:
    ValueError, FileNotFoundError: the data cannot be read.
  """
  backends.use_all_cores()
  public = build.load_data(
      config, data_dir=data_dir, download=download
  ).validation
  learner = learners_lib.make_learner(config, public.image_shape)
  episode = config.release.plan.episode
  assert episode is not None  # `propose.check`.
  drawn = training.draw(
      public, way=episode.way, shot=episode.shot, query=episode.query,
      count=tasks + _STEPS * _AT_ONCE, seed=0,
  )
  gradients = Gradients(learner, drawn)
  params = learner.init(jax.random.key(config.seed))
  start = gradients.alignment(params, tasks)
  flat, unravel = flatten_util.ravel_pytree(params)
  optimizer = learners_lib.make_optimizer(
      config.with_changes({"optimizer.warm_up": 0}), _STEPS
  )
  state = optimizer.init(params)
  for step in range(_STEPS):
    sums, norms = gradients(params, tasks + step * _AT_ONCE, _AT_ONCE)
    mean = unravel(jnp.asarray(sums[1] / len(norms), flat.dtype))
    updates, state = optimizer.update(mean, state, params)
    params = optax.apply_updates(params, updates)
  return Measured(
      tasks=tasks, start=start,
      warm=gradients.alignment(params, tasks), warm_steps=_STEPS,
  )


BUDGET = 100_000  # Tasks, where none are given.
# Fewer steps are not proposed, however clear they are: in
# experiments/results/budget.json fifteen stay seven points behind sixty.
LEAST_STEPS = 10
LEAST_SCORE = 5.0  # Effective steps below which a warning says so.
_SIZES = tuple(n * 10**power for power in range(9) for n in (1, 2, 3, 5))
_WORTH = 0.6  # Rows whose score is below this share of the best end a search.
_SHOWN = 0.5  # Rows whose score is below this share of it are left out.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """A way to spend the budget.

  Attributes:
    tasks: L, the expected tasks of a step.
    steps: T.
    noise_multiplier: z, which spends the epsilon.
    epsilon: spent, by the accountant: at most the wanted one.
    share: of a step's squared length that is signal.
    config: the one that was asked about, changed to be this one.
    changes: name -> value, of the config.
  """

  tasks: float
  steps: int
  noise_multiplier: float
  epsilon: float
  share: float
  config: RunConfig
  changes: dict[str, Any]

  @property
  def score(self) -> float:
    """Return the effective steps."""
    return self.steps * self.share

  @property
  def flags(self) -> list[str]:
    """Return the changes, as the command line takes them."""
    return [
        f'--config.{name}="{value}"' if isinstance(value, tuple)
        else f"--config.{name}={value}"
        for name, value in self.changes.items()
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
  """A config, and the epsilon that its changed plans may spend.

  Attributes:
    config: whose learner, data and sampler are kept.
    epsilon: not to be passed.
    delta: of it.
    level: whose guarantee it is.
    clip_norm: to which gradients are clipped.
    gradient: the agreement of clipped gradients.
  """

  config: RunConfig
  epsilon: float
  delta: float
  level: str
  clip_norm: float
  gradient: Clipped

  def row(self, tasks: float, steps: int) -> Row | None:
    """Find the noise of a plan, and check it by the accountant.

    Args:
      tasks: about L; sizes and rates are rounded.
      steps: T.

    Returns:
      None where the data have no steps of that many tasks.

    Raises:
      PlanError, UnsoundPlanError: the level has no such guarantee.
    """
    changes = _stages(self.config.release, tasks)
    if changes is None:
      return None
    changes |= {
        "steps": steps,
        "mechanism.noise_multiplier": 1.0,
        "mechanism.clip_norm": self.clip_norm,
    }
    found = solving.calibrate(
        self.config.with_changes(changes),
        epsilon=self.epsilon, delta=self.delta, level=self.level,
    )
    changes["mechanism.noise_multiplier"] = found.noise_multiplier
    config = self.config.with_changes(changes)
    noise = config.release.mechanism.gradient_noise_multiplier
    return Row(
        tasks=found.per_step,
        steps=steps,
        noise_multiplier=found.noise_multiplier,
        epsilon=found.epsilon,
        share=self.gradient.share(found.per_step, noise),
        config=config,
        changes=changes,
    )

  def rows(self, budget: int) -> list[Row]:
    """Search the best tasks per step; return rows of rising tasks per step.

    Args:
      budget: tasks of all steps together.

    Raises:
      PlanError: the budget is too small, or the first stage is All().
    """
    release = self.config.release
    sizes = [
        size for size in _SIZES
        if size <= budget // LEAST_STEPS and _stages(release, size) is not None
    ]
    if not sizes:
      raise errors.PlanError(
          f"no step of a budget of {budget} tasks fits the first stage"
          f" {release.plan.stages[0]}: use Poisson(p) or FixedSize(n) and, with"
          f" at least {LEAST_STEPS} steps, a larger --tasks"
      )
    # Noise is as large as signal here, for z = 1.
    guess = math.sqrt(self.gradient.parameters / self.gradient.signal)
    middle = min(range(len(sizes)), key=lambda i: abs(sizes[i] - guess))
    found: dict[int, Row] = {}
    for side in (1, -1):
      i = middle
      while 0 <= i < len(sizes):
        row = found.get(i) or self.row(sizes[i], budget // sizes[i])
        assert row is not None  # `_stages` fits.
        found[i] = row
        if row.score < _WORTH * max(other.score for other in found.values()):
          break
        i += side
    best = max(row.score for row in found.values())
    return [found[i] for i in sorted(found) if found[i].score >= _SHOWN * best]


def _stages(
    release: plan_lib.Release, tasks: float
) -> dict[str, Any] | None:
  """Return the changes of a config for about this many tasks a step."""
  hierarchy, plan = release.hierarchy, release.plan
  factor = tasks / plan_lib.tasks_per_step(hierarchy, plan)
  found = _with_more_tasks(hierarchy, plan, factor)
  if found is None:
    return None
  assert found.episode is not None
  if found.episode.form == "independent":
    return {"episode.tasks": found.episode.tasks}
  first, *others = found.stages
  if isinstance(first, plan_lib.Poisson):
    first = plan_lib.Poisson(float(f"{first.p:.4g}"))
  return {"plan.stages": tuple(map(stages.stage_text, (first, *others)))}


def _with_more_tasks(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan, factor: float
) -> plan_lib.SamplingPlan | None:
  """Return the plan with about `factor` times the tasks, None if none fits."""
  stage, episode = plan.stages[0], plan.episode
  assert episode is not None  # `check`.
  if episode.form == "independent":
    tasks = max(1, round((episode.tasks or 1) * factor))
    return dataclasses.replace(
        plan, episode=dataclasses.replace(episode, tasks=tasks)
    )
  try:
    if isinstance(stage, plan_lib.Poisson):
      other: plan_lib.Stage = plan_lib.Poisson(stage.p * factor)
    elif isinstance(stage, plan_lib.FixedSize):
      way = episode.way if episode.form == "disjoint" else 1
      other = plan_lib.FixedSize(way * max(1, round(stage.n * factor / way)))
    elif isinstance(stage, plan_lib.RandomAllocation):
      other = plan_lib.RandomAllocation(max(1, round(stage.steps / factor)))
    else:
      return None
    found = dataclasses.replace(plan, stages=(other, *plan.stages[1:]))
    plan_lib.validate(hierarchy, found)
  except (errors.PlanError, errors.UnsoundPlanError):
    return None
  return found


def check(config: RunConfig) -> None:
  """Refuse configs that this score does not describe.

  Raises:
    PlanError: single examples are learned, or gradients clipped by layer.
  """
  release = config.release
  if release.plan.episode is None or release.mechanism.noisy_inner_steps:
    raise errors.PlanError(
        "plan compares steps of whole tasks, and the clip unit of this config"
        f" is one {release.mechanism.clip_unit}: use episodic-dp calibrate"
    )
  if release.mechanism.clip_by != "global":
    raise errors.PlanError(
        f"plan measures the norm of whole gradients, and clip_by is"
        f" '{release.mechanism.clip_by}': give --config.mechanism.clip_by="
        "global"
    )


def clip_norm(*measured: Alignment) -> float:
  """Return a norm below those of nine tasks of ten, rounded to two digits.

  Noise is in units of the clip norm. A norm below the gradients' keeps the
  whole signal, and a smaller one loses nothing to an optimiser that takes out
  the scale, as Adam does.
  """
  if not all(m.squared > 0 and m.quantile(0.1) > 0 for m in measured):
    raise errors.PlanError(
        "the public tasks' gradients have nothing in common: check the learner"
        " and its rates"
    )
  least = min(m.quantile(0.1) for m in measured)
  scale = 10.0 ** (1 - math.floor(math.log10(least)))
  return float(f"{math.floor(least * scale) / scale:.2g}")


# The proposal ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
  """Ways to spend a budget, and the best of them.

  Attributes:
    problem: the question.
    measured: on public tasks.
    rows: ways to spend the budget.
  """

  problem: Problem
  measured: Measured
  rows: Sequence[Row]

  @property
  def choice(self) -> Row:
    """Return the row with the most effective steps."""
    return max(self.rows, key=lambda row: row.score)

  def table(self) -> str:
    """Write the rows as a table, with the choice and what it rests on."""
    problem, measured, choice = self.problem, self.measured, self.choice
    rows = [
        (
            f"{row.tasks:.4g}", row.steps, f"{row.noise_multiplier:.4g}",
            report.rounded_up(row.epsilon), f"{100 * row.share:.0f} %",
            f"{row.score:.1f}", "chosen" if row is choice else "",
        )
        for row in self.rows
    ]
    lines = [
        f"Public tasks: {measured.tasks} of the validation split; their"
        f" gradients of {measured.warm.parameters} entries agree by"
        f" {math.sqrt(measured.start.squared):.3f} at the start and"
        f" {math.sqrt(measured.warm.squared):.3f} after"
        f" {measured.warm_steps} steps without noise.",
        f"Clip norm {problem.clip_norm:g}: nine of ten are longer. Private data"
        " were not used.",
        "",
        tables.text((
            "tasks a step", "steps", "noise multiplier", "epsilon",
            "signal of a step", "effective steps", "",
        ), rows),
        "",
        f"Epsilon is of one {problem.level} at delta {problem.delta:g}, by the"
        " accountant; effective steps, the",
        "same progress without noise, compare plans of this one learner.",
    ]
    if choice.score < LEAST_SCORE:
      lines.append(
          f"Fewer than {LEAST_SCORE:g} effective steps teach little: take a"
          " larger epsilon, or more participants and tasks."
      )
    if problem.config.release.hierarchy.copies:
      lines.append(
          f"Epsilon is that of one {problem.level}: records recur in several,"
          " and episodic-dp account says what that costs."
      )
    return "\n".join(lines)

  def as_dict(self) -> dict[str, Any]:
    """Return the same as plain data."""
    problem, measured = self.problem, self.measured
    return {
        "target_epsilon": problem.epsilon,
        "delta": problem.delta,
        "level": problem.level,
        "clip_norm": problem.clip_norm,
        "public_tasks": measured.tasks,
        "parameters": measured.warm.parameters,
        "squared_alignment": {
            "start": measured.start.squared, "warm": measured.warm.squared
        },
        "rows": [
            {
                "tasks": row.tasks,
                "steps": row.steps,
                "noise_multiplier": row.noise_multiplier,
                "epsilon": row.epsilon,
                "signal_share": row.share,
                "effective_steps": row.score,
                "chosen": row is self.choice,
                "flags": row.flags,
            }
            for row in self.rows
        ],
        "flags": self.choice.flags,
    }


def propose(
    config: RunConfig,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    level: str | None = None,
    tasks: int = BUDGET,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
) -> Proposal:
  """Propose tasks per step, steps, noise and clip norm for an epsilon.

  Args:
    config: whose sampler, data and learner are kept.
    epsilon: not to be passed; None for `config.target_epsilon`.
    delta: None for `config.delta`.
    level: whose guarantee it is; None for `config.level`.
    tasks: of all steps together.
    data_dir: folder of the data sets that are not built in, or own data.
    download: fetch the files that data_dir does not have.

  Raises:
    PlanError: something is missing, out of range or cannot be reached.
    UnsoundPlanError: the level has no guarantee.
    ValueError, FileNotFoundError: the data cannot be read.
  """
  epsilon = solving.asked_epsilon(config, epsilon)
  delta, level = delta or config.delta, level or config.level
  if tasks < LEAST_STEPS:
    raise errors.PlanError(
        f"--tasks={tasks} are fewer than {LEAST_STEPS} steps of one task: give"
        f" more, such as --tasks={BUDGET}"
    )
  config.check_complete()
  check(config)
  report.refuse_un_noised(config.release.mechanism)
  accounting.guarantee(config.release, steps=1, delta=delta, level=level)
  with phases.phase("taking gradients of public tasks"):
    measured = measure(
        config, data_dir=data_dir, download=download
    )
  norm = clip_norm(measured.start, measured.warm)
  problem = Problem(
      config=config, epsilon=epsilon, delta=delta, level=level, clip_norm=norm,
      gradient=measured.clipped(norm),
  )
  with phases.phase("calibrating the noise"):
    rows = problem.rows(tasks)
  return Proposal(problem=problem, measured=measured, rows=rows)
