"""Which tasks per step, steps and noise serve an epsilon and a budget best.

A budget of B tasks makes T = B / L steps of L tasks. The accountant says which
noise multiplier z spends the epsilon; how much of a step is signal then follows
from the alignment of single tasks' gradients, measured on public tasks.

Why the score is what it is. In units of the clip norm a clipped gradient is a
mean of squared length s^2 and a scatter about it of 1 - s^2, so that the noised
mean of L of them in d dimensions is, in squared length,

    s^2                      signal, the same in every step of this kind,
    (1 - s^2) / L            which tasks were drawn,
    d z^2 / L^2              noise.

Let c^2 be the share of s^2 in the sum. A step along g, of rate r, on a function
of smoothness M gains r |E g|^2 - M r^2 E|g|^2 / 2; at the best rate this is
|E g|^2 c^2 / 2M, which is c^2 times the gain of a step without noise. (With
batches alone this is the noise scale of McCandlish et al., "An Empirical Model
of Large-Batch Training", 2018.) Momentum and averages of the iterates change
the best rate, not how much signal there is to average. So the score is

    T c^2,  "effective steps",

as many steps without noise as would get about as far. At a fixed number of
tasks it is largest near L = z sqrt(d) / s, as many tasks as make the noise as
large as the signal, and below that where z itself grows with L. More tasks in a
step are fewer steps, each hardly clearer; fewer drown. It compares plans of one
learner and network: what more steps or a wider network are worth in accuracy it
does not say, nor does it know how the alignment changes while a network learns.
"""

import dataclasses
import math
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.analysis import alignment
from episodic_dp.analysis import calibration
from episodic_dp.analysis import sweep_plans
from episodic_dp.config import RunConfig

# Fewer steps are not proposed, however clear they are: in
# experiments/results/budget.json fifteen stay seven points behind sixty.
LEAST_STEPS = 10
LEAST_SCORE = 5.0  # Effective steps below which a warning says so.
_SIZES = (1, 2, 3, 5)  # Times powers of ten.
_WORTH = 0.6  # Rows whose score is below this share of the best end a search.
_SHOWN = 0.5  # Rows whose score is below this share of it are left out.
_AS_GOOD = 0.95  # Half the tasks are taken if they keep this share of it.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """A way to spend the budget.

  Attributes:
    tasks: L, the expected tasks of a step.
    steps: T.
    noise_multiplier: z, which spends the epsilon.
    epsilon: what is spent, by the accountant: at most what was asked.
    share: the part of a step's squared length that is signal.
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
    """Effective steps."""
    return self.steps * self.share

  @property
  def signal_to_noise(self) -> float:
    """Of one step, as a ratio of lengths; noise is all that is not signal."""
    return math.sqrt(self.share / (1 - self.share))

  @property
  def flags(self) -> list[str]:
    """The changes, as the command line takes them."""
    return [
        f'--config.{name}="{value}"' if isinstance(value, tuple)
        else f"--config.{name}={value}"
        for name, value in self.changes.items()
    ]  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
  """What is asked.

  Attributes:
    config: whose learner, data and sampler are kept.
    epsilon: not to be passed.
    delta: of it.
    level: whose guarantee it is.
    clip_norm: what gradients are clipped to.
    gradient: what clipped gradients have in common.
  """

  config: RunConfig
  epsilon: float
  delta: float
  level: str
  clip_norm: float
  gradient: alignment.Clipped

  def row(self, tasks: float, steps: int, start: float = 1.0) -> Row | None:
    """The noise of a plan, found and checked by the accountant.

    Args:
      tasks: about L; sizes and rates are rounded.
      steps: T.
      start: a noise multiplier to begin the search with.

    Returns:
      None where the data have no steps of so many tasks.

    Raises:
      PlanError, UnsoundPlanError: the level has no such guarantee.
    """
    changes = _stages(self.config.release, tasks)
    if changes is None:
      return None
    changes |= {
        "steps": steps,
        "mechanism.noise_multiplier": start,
        "mechanism.clip_norm": self.clip_norm,
    }
    found = calibration.calibrate(
        self.config.with_changes(changes),
        epsilon=self.epsilon, delta=self.delta, level=self.level,
    )  # fmt: skip
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
    """Rows of rising tasks per step, the best among them.

    Args:
      budget: tasks of all steps together.

    Raises:
      PlanError: the budget is too small, or nothing is sampled by a number.
    """
    most = budget // LEAST_STEPS
    if most < 1:
      raise plan_lib.PlanError(
          f"a budget of {budget} tasks is less than {LEAST_STEPS} steps of one"
          f" task: give more, such as --tasks={100 * LEAST_STEPS}"
      )
    sizes = [size for size in _grid() if size <= most]
    guess = self._guess()
    middle = min(range(len(sizes)), key=lambda i: abs(sizes[i] - guess))
    found: dict[int, Row] = {}
    for way in (1, -1):
      i = middle
      while 0 <= i < len(sizes):
        best = max((row.score for row in found.values()), default=0.0)
        if i not in found:
          near = found.get(i - way)
          row = self.row(
              sizes[i], budget // sizes[i],
              near.noise_multiplier if near else 1.0,
          )  # fmt: skip
          if row is None:
            if way == 1 and not found:
              # The data are few: begin with the largest step that they have.
              middle = i = i - 1
              continue
            break
          found[i] = row
          if row.score < _WORTH * best:
            break
        i += way
    if not found:
      raise plan_lib.PlanError(
          f"the first stage {self.config.release.plan.stages[0]} has no number"
          " of tasks to choose: use Poisson(p) or FixedSize(n)"
      )
    best = max(row.score for row in found.values())
    rows = [found[i] for i in sorted(found)]
    return [row for row in rows if row.score >= _SHOWN * best]

  def choose(self, budget: int) -> tuple[list[Row], Row]:
    """The rows of a budget, and the one to take.

    Half the tasks, or a quarter, are taken where the rest buys nothing: noise
    that grows with the steps as fast as the signal. Their best row is added.
    """
    rows = self.rows(budget)
    best = max(rows, key=lambda row: row.score)
    while best.steps >= 2 * LEAST_STEPS and best.share < 1 / (2 * _AS_GOOD):
      budget //= 2
      half = self.row(best.tasks, best.steps // 2, best.noise_multiplier)
      if half is None or half.score < _AS_GOOD * best.score:
        break
      half = max((*self.rows(budget), half), key=lambda row: row.score)
      rows, best = [*rows, half], half
    return rows, best

  def least_epsilon(self, rows: list[Row], wanted: float) -> float | None:
    """The least epsilon at which one of the rows has so many effective steps.

    Args:
      rows: of any noise.
      wanted: effective steps.

    Returns:
      By the accountant, for the noise that leaves just so many; None where not
      even a step without noise does.
    """
    found = []
    for row in rows:
      noise = 0.0
      if row.steps > wanted:
        noise = self.gradient.noise_for(wanted / row.steps, row.tasks)
      if noise > 0:
        release = row.config.release
        mechanism = release.mechanism
        if mechanism.count_noise is not None:  # The count takes its part.
          noise = 1 / math.hypot(1 / noise, 0.5 / mechanism.count_noise)
        mechanism = dataclasses.replace(
            mechanism.with_fixed_norm, noise_multiplier=noise
        )
        found.append(
            accounting.guarantee(
                release.replace(mechanism=mechanism), steps=row.steps,
                delta=self.delta, level=self.level,
            ).epsilon
        )  # fmt: skip
    return min(found, default=None)

  def _guess(self) -> float:
    """Where noise is as large as signal, for the noise of one task in many."""
    return math.sqrt(self.gradient.parameters / self.gradient.signal)


def check(config: RunConfig) -> None:
  """Refuses what this score is not of.

  Raises:
    PlanError: single examples are learned, or clipped by layer.
  """
  release = config.release
  if release.plan.episode is None or release.mechanism.noisy_inner_steps:
    raise plan_lib.PlanError(
        "plan compares steps of whole tasks, and the clip unit of this config"
        f" is one {release.mechanism.clip_unit}: use episodic-dp calibrate"
    )
  if release.mechanism.clip_by != "global":
    raise plan_lib.PlanError(
        f"plan measures the norm of whole gradients, and clip_by is"
        f" '{release.mechanism.clip_by}': give --config.mechanism.clip_by="
        "global"
    )


def clip_norm(*measured: alignment.Alignment) -> float:
  """A norm that nine tasks of ten are above: rounded down to two digits.

  Below the norms the signal in units of the clip norm is whole, and noise is
  in these units: a smaller one loses nothing to an optimiser that takes out
  the scale, as Adam does.
  """
  if not all(m.squared > 0 and m.quantile(0.1) > 0 for m in measured):
    raise plan_lib.PlanError(
        "the public tasks' gradients have nothing in common: check the learner"
        " and its rates, or give another --proxy"
    )
  least = min(m.quantile(0.1) for m in measured)
  scale = 10.0 ** (1 - math.floor(math.log10(least)))
  return float(f"{math.floor(least * scale) / scale:.2g}")


def _grid() -> tuple[int, ...]:
  """Whole numbers about evenly apart in ratio."""
  return tuple(size * 10**power for power in range(9) for size in _SIZES)


def _stages(
    release: plan_lib.Release, tasks: float
) -> dict[str, Any] | None:
  """The changes of a config for about so many tasks a step, or None."""
  hierarchy, plan = release.hierarchy, release.plan
  factor = tasks / plan_lib.tasks_per_step(hierarchy, plan)
  found = sweep_plans.with_more_tasks(hierarchy, plan, factor)
  if found is None:
    return None
  assert found.episode is not None
  if found.episode.form == "independent":
    return {"episode.tasks": found.episode.tasks}
  first, *others = found.stages
  if isinstance(first, plan_lib.Poisson):
    first = plan_lib.Poisson(float(f"{first.p:.4g}"))
  return {"plan.stages": tuple(map(plan_lib.stage_text, (first, *others)))}
