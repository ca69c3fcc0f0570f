"""Task-level DP-MAML at many settings: what the figures of [M] sweep over.

[M] is "Meta-Learning with Differential Privacy". A `Point` is one training; the
figures that show the same point share its folder, so that it is trained once.
A step draws each participant with the paper's probability L / 400 000,
independently, and there are 400 000 / L steps, at every scale but smoke: so a
point has the paper's privacy whatever the number of participants.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
from typing import Any

from episodic_dp.output import plotting
from experiments import published as published_lib
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels
from experiments.targets import spending

TASKS = 400_000  # Of [M].
LOT, K = 1600, 90.0  # Its defaults.
CHANCE = 1 / budgets.WAY
PRIVATE, RAW, FIXED = "private_quantile", "percentile_window", "fixed"
TITLES = {
    PRIVATE: "clip norm follows a percentile, noised",
    RAW: "clip norm is the raw percentile, as in [M]",
    FIXED: "fixed clip norm",
}
# How a value of the paper is drawn.
PUBLISHED: dict[str, Any] = dict(
    color=plotting.INK, linestyle="", marker="*", markersize=11,
    markerfacecolor="white", zorder=4,
)  # fmt: skip
_PUBLISHED = "[M], at its size"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
  """One setting of task-level DP-MAML.

  Attributes:
    lot: L, expected tasks of a step with 400 000 participants.
    noise: z; 0 is a run without privacy, which is not clipped either.
    clipping: PRIVATE, with a guarantee; RAW, as in [M], without one; or FIXED.
    k: the percentile of the norms that the clip norm follows.
    clip_norm: C where it is fixed.
  """

  lot: int = LOT
  noise: float = 1.0
  clipping: str = PRIVATE
  k: float | None = K
  clip_norm: float | None = None

  @property
  def name(self) -> str:
    """Of its folder, but for the key."""
    if not self.noise:
      return f"maml_lot_{self.lot}"
    how = self.clip_norm if self.clipping == FIXED else self.k
    return f"dp_maml_lot_{self.lot}_z_{self.noise:g}_{self.clipping}_{how:g}"

  @property
  def diagnosed(self) -> bool:
    """Whether figures 4, 6a or 9 look at its norms and losses."""
    return self.lot == LOT and self.noise <= 3


def fixed(clip_norm: float) -> Point:
  """The default point at a clip norm that stays."""
  return Point(clipping=FIXED, k=None, clip_norm=clip_norm)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Size:
  """How large the runs of a scale are.

  Attributes:
    config: of the data, and the arguments that all runs share.
    participants: how many there are.
    shrunk: steps and rates are of this many times fewer participants; 1 but
      for a trial, whose steps are two.
    keys: runs of each point.
    clip_norm: about the largest gradient norm of an untrained network.
    validation, test: tasks.
  """

  config: str
  arguments: str
  participants: int
  shrunk: int = 1
  keys: int = 1
  clip_norm: float = 15.0
  validation: int = 600
  test: int = 600


_SIZES = {
    "smoke": _Size(
        config="glyphs",
        arguments="width=2,inner_steps=1,size=16",
        participants=200,
        shrunk=20,
        validation=8,
        test=16,
    ),
    "cpu": _Size(
        config="omniglot",
        arguments="width=8,inner_steps=1",
        participants=TASKS // 10,
    ),
    "full": _Size(
        config="omniglot",
        arguments="width=64,inner_steps=5",
        participants=TASKS,
        keys=3,
        clip_norm=20.0,
    ),
}


def runs(points: Sequence[Point], scale: str) -> list[runs_lib.Run]:
  """The runs of these points: one for every key of the scale."""
  size = _SIZES[scale]
  return [
      _run(point, size, key) for point in points for key in range(size.keys)
  ]


def _run(point: Point, size: _Size, key: int) -> runs_lib.Run:
  # 1 and 1.0 are one point and must be one command.
  point = dataclasses.replace(point, noise=float(point.noise))
  rate = point.lot * size.shrunk / TASKS
  steps = TASKS // point.lot if size.shrunk == 1 else 2
  tasks = size.participants * rate
  arguments = (
      f"private={int(point.noise > 0)},{size.arguments},"
      f"participants={size.participants},rate={rate:g},steps={steps}"
  )
  every = max(steps // 10, 1)
  fields: dict[str, Any] = {
      "delta": spending.DELTA,
      "seed": key,
      "evaluation.every": every,
      "checkpoint_every": every,
      "evaluation.validation_tasks": size.validation,
      "evaluation.test_tasks": size.test,
      "private_diagnostics": point.diagnosed,
  }
  if size.shrunk > 1:
    fields["learner.order"] = "first"  # It compiles sooner.
  if point.noise:
    clipping = _clipping(point, size, tasks) | {"noise_multiplier": point.noise}
    fields |= {f"mechanism.{k}": v for k, v in clipping.items()}
  labels = dataclasses.asdict(point) | dict(tasks=tasks, rate=rate, key=key)
  return runs_lib.Run(
      name=f"{point.name}_key_{key}",
      config=size.config,
      arguments=arguments,
      overrides=fields,
      labels=labels,
  )


def _clipping(point: Point, size: _Size, tasks: float) -> dict[str, Any]:
  """The fields of `config.mechanism` that say how tasks are clipped."""
  fields: dict[str, Any] = dict(
      clipping=point.clipping, clip_norm=point.clip_norm or size.clip_norm
  )
  if point.clipping == PRIVATE:
    assert point.k is not None
    # The count of norms takes 1 % of what a step may reveal: z' = 1.005 z.
    fields |= dict(
        clip_quantile=point.k / 100, clip_rate=0.2, count_noise=5 * point.noise
    )
  elif point.clipping == RAW:
    # W = 2L, looked at again after L more.
    fields |= dict(
        clip_percentile=point.k, clip_window=2 * max(1, round(tasks))
    )
    fields["clip_norm"] *= 2  # It only falls.
  return fields


# Tables and pictures -------------------------------------------------------


def interval(found: Sequence[panels.Outcome]) -> tuple[float, float, float]:
  """(mean, low, high) accuracy in percent of the last checkpoint.

  With one key the 95 % interval over test tasks; with several, the lowest and
  the highest of them.
  """
  scores = [o["accuracy"]["single"] for o in found]
  means = [100 * s["mean"] for s in scores]
  mean = sum(means) / len(means)
  if len(scores) > 1:
    return mean, min(means), max(means)
  return mean, 100 * scores[0]["low"], 100 * scores[0]["high"]


def diagnostic(found: Sequence[panels.Outcome], name: str) -> list[float]:
  """A private diagnostic of every step, the mean over keys."""
  columns = [o["diagnostics"][name] for o in found]
  return [sum(at) / len(at) for at in zip(*columns)]


def setting(outcomes: panels.Outcomes) -> str:
  """What all runs have in common, for the title of a picture."""
  config = next(iter(outcomes.values()))["config"]
  participants = config["data"]["options"]["participants"]
  name, steps = config["data"]["name"], config["learner"]["inner_steps"]
  return (
      f"{published_lib.NAMES.get(name, name)}, 5-way 1-shot MAML of width"
      f" {config['model']['width']}, {steps} inner step{'s' * (steps > 1)},"
      f" {participants:,} participants"
  )


def axes_of_accuracy(axes: Any, outcomes: panels.Outcomes) -> None:
  """Title, chance and the axis of accuracies."""
  axes.axhline(100 * CHANCE, label="chance", **plotting.REFERENCE)
  axes.set_ylim(0, 100)
  axes.set_title(setting(outcomes))
  axes.set_ylabel("test accuracy (%), 95 % interval")


def published(
    axes: Any, values: Mapping[float, float], label: str = _PUBLISHED
) -> None:
  """Draws what the text of the paper states."""
  if values:
    axes.plot([*values], [*values.values()], label=label, **PUBLISHED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
  """A figure of accuracies over one setting, as a target.

  Attributes:
    points: of each scale.
    axis: the name of the setting, and whether its axis is logarithmic.
    x: where a run stands on it.
    line: the name of the line that a run, told by its labels, stands on.
    values: x -> accuracy in percent that the text of [M] states.
    peaks: line -> x of the best accuracy, where the text states that alone.
    more: header -> cell of a further column, told by labels.
  """

  points: Mapping[str, Sequence[Point]]
  axis: tuple[str, bool]
  x: Callable[[panels.Outcome], float]
  line: Callable[[Mapping[str, Any]], str]
  values: Mapping[float, float] = dataclasses.field(default_factory=dict)
  peaks: Mapping[str, float] = dataclasses.field(default_factory=dict)
  more: Mapping[str, Callable[[Mapping[str, Any]], str]] = dataclasses.field(
      default_factory=dict
  )

  def runs(self, scale: str) -> list[runs_lib.Run]:
    """See `experiments.targets`."""
    return runs(self.points[scale], scale)

  def table(
      self, outcomes: panels.Outcomes
  ) -> tuple[list[str], list[list[str]]]:
    """A row per point; an order is claimed where intervals separate."""
    header = [
        "runs",
        self.axis[0],
        *self.more,
        "tasks a step, expected",
        "steps",
        "test accuracy, last checkpoint",
        "ensemble of five",
        "[M]",
        "clearly below the best of its line",
        *spending.COSTS,
        "of CPU time",
    ]
    rows = []
    for line, found in self._lines(outcomes).items():
      best = max(map(interval, found))
      for same in found:
        rows.append([
            line,
            f"{self.x(same[0]):.4g}",
            *(cell(same[0]["labels"]) for cell in self.more.values()),
            f"{same[0]['labels']['tasks']:g}",
            str(same[0]["steps"]),
            panels.accuracy(same),
            panels.accuracy(same, "ensemble"),
            self._stated(line, self.x(same[0])),
            _below(interval(same), best),
            *spending.costs(same),
            panels.seconds(same, "cpu_seconds"),
        ])
    return header, rows

  def draw(self, outcomes: panels.Outcomes, figure: Any) -> None:
    """Accuracy over the setting, beside what the paper states."""
    axes = figure.subplots()
    for number, (line, found) in enumerate(self._lines(outcomes).items()):
      x = [self.x(same[0]) for same in found]
      middle, low, high = zip(*map(interval, found))
      ends = [
          [m - a for m, a in zip(middle, low)],
          [b - m for m, b in zip(middle, high)],
      ]
      style = plotting.series(number)
      axes.errorbar(x, middle, yerr=ends, capsize=2, label=line, **style)
      if line in self.peaks:
        axes.axvline(
            self.peaks[line],
            color=style["color"],
            linestyle=(0, (1, 3)),
            label=f"[M]: best there ({line})",
        )
    published(axes, self.values)
    axes_of_accuracy(axes, outcomes)
    name, logarithmic = self.axis
    if logarithmic:
      axes.set_xscale("log")
      plotting.ticks(
          axes.xaxis, sorted({self.x(o) for o in outcomes.values()})
      )
    axes.set_xlabel(name)
    axes.legend(loc="lower left", fontsize=8)

  def finding(self, outcomes: panels.Outcomes) -> str:
    """The best point of each line, and what is clearly below it."""
    found = []
    for line, points in self._lines(outcomes).items():
      if len(points) < 2:
        continue
      best = max(points, key=interval)
      below = [
          f"{self.x(same[0]):.4g}"
          for same in points
          if _below(interval(same), interval(best)) == "yes"
      ]
      found.append(
          f"{line}: best at {self.x(best[0]):.4g} ({panels.accuracy(best)}),"
          f" clearly below it at {', '.join(below) or 'no other'}"
      )
    return f"Over {self.axis[0]}: {'; '.join(found)}." if found else ""

  def _lines(
      self, outcomes: panels.Outcomes
  ) -> dict[str, list[list[panels.Outcome]]]:
    """line -> its points in the order of x, each with the runs of its keys."""
    found: dict[str, list[list[panels.Outcome]]] = {}
    for same in panels.group(outcomes, "key").values():
      found.setdefault(self.line(same[0]["labels"]), []).append(same)
    return {
        line: sorted(points, key=lambda same: self.x(same[0]))
        for line, points in found.items()
    }

  def _stated(self, line: str, x: float) -> str:
    if x in self.values:
      return f"{self.values[x]:g} %"
    return "the best" if self.peaks.get(line) == x else ""


def _below(
    here: tuple[float, float, float], best: tuple[float, float, float]
) -> str:
  """Whether the interval of an accuracy lies below that of the best."""
  if here == best:
    return "the best"
  return "yes" if here[2] < best[1] and not math.isnan(here[2]) else "no"
