"""Training figures of "Meta-Learning with Differential Privacy", [M].

The table `TARGETS` has the points that each figure trains, and its panel. A
`Point` is one training of task-level DP-MAML. Figures that show the same point
share its folder, so that it is trained once. A step samples each participant
with the paper's probability L / 400 000, independently, and there are
400 000 / L steps, at every scale but smoke. So a point has the paper's privacy
whatever the number of participants.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import itertools
import statistics
from typing import Any

import numpy as np

from episodic_dp.output import plotting
from experiments import published as published_lib
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

TASKS = 400_000  # Of [M].
LOT, K = 1600, 90.0  # Its defaults.
PRIVATE, RAW, FIXED = "private_quantile", "percentile_window", "fixed"
TITLES = {
    PRIVATE: "clip norm follows a percentile, noised",
    RAW: "clip norm is the raw percentile, as in [M]",
    FIXED: "fixed clip norm",
}
WINDOW = 10  # Steps whose mean is shown.


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
    """Its folder without the key."""
    if not self.noise:
      return f"maml_lot_{self.lot}"
    how = self.k
    if self.clipping == FIXED:
      how = self.clip_norm
    return f"dp_maml_lot_{self.lot}_z_{self.noise:g}_{self.clipping}_{how:g}"


_TESTED = {"evaluation.validation_tasks": 600, "evaluation.test_tasks": 600}
# Scale -> the preset and the arguments of all runs; participants, and of how
# many times fewer steps and rates are (1 but for a trial of two steps); keys of
# each point; about the largest gradient norm of an untrained network.
_SIZES: dict[str, dict[str, Any]] = {
    "smoke": dict(
        config="glyphs", arguments="width=2,inner_steps=1,size=16",
        participants=200, shrunk=20, keys=1, clip_norm=15.0,
        # The first order compiles sooner.
        overrides=budgets.SMALL | {"learner.order": "first"},
    ),
    "cpu": dict(
        config="omniglot", arguments="width=8,inner_steps=1",
        participants=TASKS // 10, shrunk=1, keys=1, clip_norm=15.0,
        overrides=_TESTED,
    ),
    "full": dict(
        config="omniglot", arguments="width=64,inner_steps=5",
        participants=TASKS, shrunk=1, keys=3, clip_norm=20.0,
        overrides=_TESTED,
    ),
}


def runs(points: Sequence[Point], scale: str) -> list[runs_lib.Run]:
  """Return the runs of some points: one for every key of the scale."""
  size = _SIZES[scale]
  return [
      _run(point, size, key) for point in points for key in range(size["keys"])
  ]


def _run(point: Point, size: Mapping[str, Any], key: int) -> runs_lib.Run:
  # 1 and 1.0 are one point and must be one command.
  point = dataclasses.replace(point, noise=float(point.noise))
  rate = point.lot * size["shrunk"] / TASKS
  steps = 2
  if size["shrunk"] == 1:
    steps = TASKS // point.lot
  tasks = size["participants"] * rate
  fields: dict[str, Any] = {
      "delta": budgets.DELTA,
      "seed": key,
      # Figures 4, 6a and 9 show norms and losses of these.
      "private_diagnostics": point.lot == LOT and point.noise <= 3,
      **budgets.every(steps),
      **size["overrides"],
  }
  if point.noise:
    clipping = _clipping(point, size, tasks) | {"noise_multiplier": point.noise}
    fields |= {f"mechanism.{k}": v for k, v in clipping.items()}
  return runs_lib.Run(
      name=f"{point.name}_key_{key}",
      config=size["config"],
      arguments=(
          f"private={int(point.noise > 0)},{size['arguments']},"
          f"participants={size['participants']},rate={rate:g},steps={steps}"
      ),
      overrides=fields,
      labels=dataclasses.asdict(point) | dict(tasks=tasks, rate=rate, key=key),
  )


def _clipping(
    point: Point, size: Mapping[str, Any], tasks: float
) -> dict[str, Any]:
  """Return the fields of `config.mechanism` that say how tasks are clipped."""
  fields: dict[str, Any] = dict(
      clipping=point.clipping, clip_norm=point.clip_norm or size["clip_norm"]
  )
  if point.clipping == PRIVATE:
    # The count of norms takes 1 % of what a step may reveal: z' = 1.005 z.
    fields |= dict(
        clip_quantile=(point.k or K) / 100,
        clip_rate=0.2,
        count_noise=5 * point.noise,
    )
  elif point.clipping == RAW:
    # W = 2L, looked at again after L more; the clip norm only falls.
    fields |= dict(
        clip_norm=2 * fields["clip_norm"],
        clip_percentile=point.k,
        clip_window=2 * max(1, round(tasks)),
    )
  return fields


# Accuracy over one setting ----------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
  """A panel of accuracies over one setting.

  Attributes:
    axis: the name of the setting.
    x: the place of a point on it.
    line: the name of a point's line.
    logarithmic: scale of the axis.
    values: x -> accuracy in percent that the text of [M] states.
    peaks: line -> x of the best accuracy, where the text states only that.
  """

  axis: str
  x: Callable[[panels.Same], float]
  line: Callable[[panels.Same], str]
  logarithmic: bool = False
  values: Mapping[float, float] = dataclasses.field(default_factory=dict)
  peaks: Mapping[str, float] = dataclasses.field(default_factory=dict)

  def table(self, outcomes: panels.Outcomes) -> panels.Table:
    """Return a row per point; an order is claimed where intervals separate."""
    groups = sorted(
        panels.group(outcomes, "key"), key=lambda s: (self.line(s), self.x(s))
    )
    best: dict[str, tuple[float, float, float]] = {}
    for same in groups:
      line, found = self.line(same), panels.interval(same)
      best[line] = max(best.get(line, found), found)

    def below(same: panels.Same) -> str:
      found, highest = panels.interval(same), best[self.line(same)]
      if found == highest:
        return "the best"
      return "yes" if found[2] < highest[1] else "no"

    return panels.table({
        "runs": self.line,
        self.axis: lambda same: f"{self.x(same):.4g}",
        "C": _clip_norm,
        "tasks a step, expected": panels.label("tasks", "{:g}"),
        "steps": panels.field("steps"),
        panels.SINGLE: panels.accuracy,
        "ensemble of five": panels.ensemble,
        "[M]": self._stated,
        "clearly below the best of its line": below,
        **budgets.COSTS,
        "of CPU time": panels.cpu_seconds,
    }, groups)

  def draw(self, outcomes: panels.Outcomes, figure: Any) -> None:
    """Plot accuracy over the setting, and what the paper states."""
    axes = figure.subplots()
    lines = panels.lines(panels.group(outcomes, "key"), self.line, self.x)
    for number, line in enumerate(lines):
      if line in self.peaks:
        _mark(axes, self.peaks[line], number, f"[M]: best there ({line})")
    if self.values:
      axes.plot([*self.values], [*self.values.values()], **panels.PUBLISHED)
    panels.draw_lines(
        axes, lines, self.axis, chance=budgets.CHANCE,
        logarithmic=self.logarithmic,
    )
    axes.set_title(_setting(outcomes))

  def _stated(self, same: panels.Same) -> str:
    x = self.x(same)
    if x in self.values:
      return f"{self.values[x]:g} %"
    if x == self.peaks.get(self.line(same)):
      return "the best"
    return ""


def _clip_norm(same: panels.Same) -> str:
  norm = same[0]["labels"]["clip_norm"]
  return "adapts" if norm is None else f"{norm:g}"


def _mark(axes: Any, x: float, number: int, label: str) -> None:
  """Draw a vertical line in the colour of a series."""
  axes.axvline(
      x, color=plotting.series(number)["color"], linestyle=(0, (1, 3)),
      label=label,
  )


def _setting(outcomes: panels.Outcomes) -> str:
  """Return what all runs have in common, for the title of a picture."""
  config = next(iter(outcomes.values()))["config"]
  name = config["data"]["name"]
  steps = f"{config['learner']['inner_steps']} inner steps"
  if steps == "1 inner steps":
    steps = "1 inner step"
  return (
      f"{published_lib.NAMES.get(name, name)}, 5-way 1-shot MAML of width"
      f" {config['model']['width']}, {steps},"
      f" {config['data']['options']['participants']:,} participants"
  )


def _percentile(same: panels.Same) -> float:
  """Return k, or the share of norms that were within a fixed clip norm."""
  k = same[0]["labels"]["k"]
  if k is not None:
    return float(k)
  return 100 * (1 - statistics.mean(diagnostic(same, "clipped")))


def _lot(same: panels.Same) -> float:
  return float(same[0]["labels"]["lot"])


def _noise(same: panels.Same) -> float:
  return float(same[0]["labels"]["noise"])


# Curves over the steps of a run -----------------------------------------------


def diagnostic(same: panels.Same, name: str) -> list[float]:
  """Return a private diagnostic of every step, the mean over keys."""
  columns = [o["diagnostics"].get(name, []) for o in same]
  return [statistics.mean(at) for at in zip(*columns)]


def smooth(values: Sequence[float]) -> list[float]:
  """Return the mean of each value and of up to nine before it."""
  means = []
  for end in range(1, len(values) + 1):
    means.append(statistics.mean(values[max(0, end - WINDOW) : end]))
  return means


def converged(losses: Sequence[float]) -> int:
  """Return the step from which on losses stay near the last one.

  Near is within a twentieth of the whole fall; steps count from 1.
  """
  near = losses[-1] + 0.05 * abs(losses[0] - losses[-1])
  step = 1
  for number, loss in enumerate(losses, 1):
    if loss > near:
      step = number + 1
  return step


def _epochs(same: panels.Same, steps: Sequence[int]) -> list[float]:
  """Return steps as hundredths of the run, the epochs of [M]."""
  return [100 * step / same[0]["steps"] for step in steps]


def _by_noise(outcomes: panels.Outcomes) -> dict[int, panels.Same]:
  """Return z -> its runs, one for each key."""
  return {
      round(_noise(same)): same for same in panels.group(outcomes, "key")
  }


def _guarantees(
    same: panels.Same, *, papers: bool, **target: float
) -> list[Any]:
  """Return the guarantee at every validated step."""
  rate, noise = same[0]["labels"]["rate"], same[0]["labels"]["noise"]
  found = []
  for step in same[0]["validation"]["steps"]:
    found.append(budgets.stated(rate, step, noise, papers=papers, **target))
  return found


def draw_validation(
    axes: Any, x: Sequence[float], same: panels.Same, number: int, label: str
) -> None:
  """Plot a curve of validation accuracies within its intervals.

  For one key these are the intervals over tasks; for several they reach from
  the lowest to the highest key.
  """
  names = ("values", "low", "high")
  if len(same) > 1:
    names = ("values", "values", "values")
  curves = []
  for name in names:
    curves.append(100 * np.array([o["validation"][name] for o in same]))
  middle, low, high = curves
  style = plotting.series(number)
  axes.plot(x, middle.mean(0), label=label, **style)
  axes.fill_between(
      x, low.min(0), high.max(0), color=style["color"], alpha=0.15, linewidth=0
  )


def _of_norms(measure: Callable[[Sequence[float]], float]) -> panels.Cell:
  """Return a cell with a number of the norms of all steps."""
  return lambda same: f"{measure(diagnostic(same, 'norm')):.2f}"


_norms_table = panels.tabled({
    "z": panels.label("noise", "{:g}"),
    "mean norm, first ten steps": _of_norms(
        lambda norms: statistics.mean(norms[:WINDOW])
    ),
    "last ten steps": _of_norms(
        lambda norms: statistics.mean(norms[-WINDOW:])
    ),
    "largest step, of the median one": _of_norms(
        lambda norms: max(norms) / statistics.median(norms)
    ),
    "tasks clipped": (
        lambda s: f"{100 * statistics.mean(diagnostic(s, 'clipped')):.0f} %"
    ),
    panels.SINGLE: panels.accuracy,
    budgets.EPSILON: budgets.spent,
}, "key")


def _draw_norms(outcomes: panels.Outcomes, figure: Any) -> None:
  axes = figure.subplots()
  for number, (z, same) in enumerate(_by_noise(outcomes).items()):
    norms = diagnostic(same, "norm")
    clip_norm = diagnostic(same, "clip_norm")
    x = _epochs(same, range(1, len(norms) + 1))
    axes.plot(
        x, norms, label=f"mean norm of a step, z = {z}",
        **plotting.series(number) | {"marker": ""},
    )
    if clip_norm:
      axes.plot(x, clip_norm, label="clip norm", **plotting.REFERENCE)
  axes.set_ylim(bottom=0)
  _finish(axes, outcomes, "norm of a task's gradient (private)")


def _finish(
    axes: Any,
    outcomes: panels.Outcomes,
    y_label: str,
    x_label: str = "epoch (hundredth of the run)",
) -> None:
  axes.set_title(_setting(outcomes))
  axes.set_xlabel(x_label)
  axes.set_ylabel(y_label)
  plotting.legend_below(axes, columns=3)


# z -> the epsilon that [M] holds, and its test accuracy in percent where δ is
# about 1e-6; the epoch at which its training loss converges.
HELD = {1: 1.5, 2: 0.34, 3: 0.23}
REACHED = {1: 91.0, 2: 85.0, 3: 75.0}
CONVERGED = {1: 39, 2: 58, 3: 83}
_VALIDATED = "accuracy (%), validation tasks, 95 % interval"


def _deltas(same: panels.Same, *, papers: bool) -> list[float]:
  """Return delta at the epsilon that is held, at every validated step."""
  found = _guarantees(same, papers=papers, epsilon=HELD[round(_noise(same))])
  return [guarantee.delta for guarantee in found]


def _epochs_table(outcomes: panels.Outcomes) -> panels.Table:
  return panels.table({
      "z": panels.label("noise", "{:g}"),
      panels.SINGLE: panels.accuracy,
      "ensemble of five": panels.ensemble,
      "[M]": lambda same: f"about {REACHED[round(_noise(same))]:g} %",
      "ε that is held": lambda same: f"{HELD[round(_noise(same))]:g}",
      "δ at the end by the accountant of [M]": (
          lambda same: f"{_deltas(same, papers=True)[-1]:.2g}"
      ),
      "δ at the end, tight": (
          lambda same: f"{_deltas(same, papers=False)[-1]:.2g}"
      ),
      "loss converges at epoch": _epoch,
      "by [M]": lambda same: f"about {CONVERGED[round(_noise(same))]}",
      **budgets.COSTS,
      "of CPU time": panels.cpu_seconds,
  }, _by_noise(outcomes).values())


def _draw_epochs(outcomes: panels.Outcomes, figure: Any) -> None:
  """Plot accuracy on the left axis, delta on the right one."""
  axes = figure.subplots()
  right = axes.twinx()
  for number, (z, same) in enumerate(_by_noise(outcomes).items()):
    x = _epochs(same, same[0]["validation"]["steps"])
    draw_validation(axes, x, same, number, f"accuracy, z = {z}")
    color = plotting.series(number)["color"]
    axes.plot(100, REACHED[z], **panels.PUBLISHED | {"color": color})
    for papers, line in ((True, "--"), (False, ":")):
      right.plot(
          x, _deltas(same, papers=papers), color=color, linestyle=line,
          linewidth=1.2,
      )
  for line, label in (("--", "the accountant of [M]"), (":", "tight")):
    axes.plot([], [], color=plotting.SOFT, linestyle=line, label=f"δ, {label}")
  right.set_yscale("log")
  right.set_ylabel("δ at ε = 1.5, 0.34 and 0.23 for z = 1, 2, 3")
  right.grid(visible=False)
  axes.set_ylim(0, 100)
  _finish(axes, outcomes, _VALIDATED)


def _losses(same: panels.Same) -> list[float]:
  return smooth(diagnostic(same, "loss"))


def _epoch(same: panels.Same) -> str:
  return f"{_epochs(same, [converged(_losses(same))])[0]:.0f}"


def _draw_losses(outcomes: panels.Outcomes, figure: Any) -> None:
  axes = figure.subplots()
  for number, (z, same) in enumerate(_by_noise(outcomes).items()):
    losses = _losses(same)
    axes.plot(
        _epochs(same, range(1, len(losses) + 1)), losses, label=f"z = {z}",
        **plotting.series(number) | {"marker": ""},
    )
    _mark(axes, CONVERGED[z], number, f"[M]: converges (z = {z})")
  _finish(axes, outcomes, "training loss on queries, mean of ten steps")


def _draw_budget(outcomes: panels.Outcomes, figure: Any) -> None:
  axes = figure.subplots()
  for number, (z, same) in enumerate(_by_noise(outcomes).items()):
    found = _guarantees(same, papers=False, delta=budgets.DELTA)
    draw_validation(
        axes, [guarantee.epsilon for guarantee in found], same, number,
        f"z = {z}",
    )
  axes.set_xscale("log")
  panels.plain_numbers(axes.xaxis)
  axes.set_ylim(0, 100)
  _finish(
      axes, outcomes, _VALIDATED, "ε of a participant spent so far, at δ = 1e-6"
  )


# The figures ------------------------------------------------------------------

_THREE = {
    "smoke": [Point()],
    "cpu": [Point(noise=z) for z in (1, 2, 3)],
    "full": [Point(noise=z) for z in (1, 2, 3)],
}
# Norms are about 11 before training and about 6 from its first tenth on.
_FIXED = [
    Point(clipping=FIXED, k=None, clip_norm=norm) for norm in (1.0, 5.0, 9.0)
]


def _grid(noises: Sequence[int], lots: Sequence[int]) -> list[Point]:
  """Return a point for every noise multiplier and every number of tasks."""
  return [
      Point(lot=lot, noise=noise)
      for noise, lot in itertools.product(noises, lots)
  ]


POINTS: dict[str, dict[str, list[Point]]] = {
    "figure4": dict.fromkeys(
        _SIZES, [Point(noise=0.0), Point(clipping=RAW)]
    ),
    "figure6a": {
        "smoke": [Point(), _FIXED[1]],
        "cpu": [
            *(Point(clipping=RAW, k=k) for k in (10.0, 50.0, 90.0)),
            *_FIXED,
            Point(),
        ],
        "full": [
            *(Point(clipping=RAW, k=float(k)) for k in range(10, 91, 20)),
            *(Point(k=float(k)) for k in range(10, 91, 20)),
            Point(clipping=FIXED, k=None, clip_norm=0.25),
            *_FIXED,
        ],
    },
    "figure6b": {
        "smoke": [Point()],
        "cpu": [Point(noise=z) for z in (1, 2, 3, 5, 7, 10)],
        "full": [Point(noise=z) for z in range(1, 11)],
    },
    "figure6c": {
        "smoke": [Point()],
        "cpu": [Point(lot=n) for n in (100, 400, 1600, 3200, 4800, 5600)],
        "full": [
            Point(lot=n)
            for n in (100, 400, 800, 1600, 2400, 3200, 4000, 4800, 5600)
        ],
    },
    "figure7": _THREE,
    "figure9": _THREE,
    "figure10": {
        "smoke": [Point()],
        "cpu": _grid((1, 2, 3), (1600, 3200, 4800)),
        "full": _grid((1, 2, 3), (800, 1600, 3200, 4800, 6400)),
    },
    "figure11": _THREE,
}
_OVER_K = Sweep(
    axis="clipping percentile k (fixed: share of norms within C, %)",
    x=_percentile,
    line=lambda same: TITLES[same[0]["labels"]["clipping"]],
    peaks={TITLES[RAW]: 90},
)
_OVER_Z = Sweep(
    axis="noise multiplier z",
    x=_noise,
    line=lambda same: f"L = {_lot(same):g}, k = {same[0]['labels']['k']:g}",
    values={1: 93.0, 10: 73.0},
)
_OVER_L = Sweep(
    axis="L, tasks a step of 400 000",
    x=_lot,
    line=lambda same: f"z = {_noise(same):g}",
    logarithmic=True,
    peaks={"z = 1": 3000},
)
_OVER_BOTH = dataclasses.replace(
    _OVER_L, peaks={"z = 1": 1600, "z = 2": 3200, "z = 3": 4800}
)
_TASK = """\
[M] is "Meta-Learning with Differential Privacy"; the task is 5-way 1-shot
Omniglot with L = 1600 tasks a step, z = 1 and the clip norm at the percentile
k = 90 of the gradient norms, unless the figure varies them; each of 400 000
tasks is used once. Here the percentile is followed through a noised count, so
that the ε of a participant holds. At cpu scale networks are narrow and
participants are ten times fewer, each drawn as often as in the paper; intervals
are over test tasks for one key, and another key's noise can move a point by
more. A participant is a task of images that are public and recur: nothing is
guaranteed for an image.

"""
# Name -> (title, text, table, draw).
_PANELS: dict[str, tuple[str, str, Any, Any]] = {
    "figure4": (
        "Gradient norms over training, without and with privacy: Figure 4 of"
        " [M]",
        """\
With privacy the clip norm is the raw percentile, as in [M], which may only
fall. The paper states that norms become smaller and converge, and that noise
gives sharp spikes; it states no number. Here are the mean norm of each step and
the clip norm. Both are computed from the participants' own data and no
guarantee covers them: they can be shown because these participants are made of
public images.""",
        _norms_table, _draw_norms,
    ),
    "figure6a": (
        "Accuracy against the clipping percentile k: Figure 6(a) of [M]",
        """\
The text of [M] states that k = 90 is the best, and that a clip norm which
follows the percentile is better than a fixed one; it states no accuracy. There
are three ways to clip: by the raw percentile of the last norms, as in [M], for
which no ε holds (the library refuses to state one); by a percentile that is
followed through a noised count; and by a fixed norm. A fixed norm is placed at
the share of gradient norms that was within it over the run, a private
diagnostic that a real run must not print. The fixed norms were not chosen by
any accuracy.""",
        _OVER_K.table, _OVER_K.draw,
    ),
    "figure6b": (
        "Accuracy against the noise multiplier z: Figure 6(b) of [M]",
        """\
The text of [M] states 93.0 % at z = 1 and about 73 % where the curve is
flat.""",
        _OVER_Z.table, _OVER_Z.draw,
    ),
    "figure6c": (
        "Accuracy against the number L of tasks a step: Figure 6(c) of [M]",
        """\
Larger steps are fewer. The text of [M] states the best accuracy at L of about
3000, and a quick fall below 1000 and above 4000, where training is stopped at a
budget of (2, 1e-6): by its accountant L = 4800 and 5600 exceed that, by the
tight one no point does, and all are trained to the end here. L is counted as in
the paper; a step samples the same share of the participants.""",
        _OVER_L.table, _OVER_L.draw,
    ),
    "figure7": (
        "Accuracy and δ over the epochs for z = 1, 2, 3: Figure 7 of [M]",
        """\
An epoch is a hundredth of the run. The paper holds ε at 1.5, 0.34 and 0.23 and
follows δ, by its moments accountant, until it is about 1e-6, where its text
states accuracies of about 91, 85 and 75 %. The same δ is plotted here, and with
it that of the tight accountant, which is smaller by orders of magnitude. The
curves are accuracies on 600 public validation tasks, the table's on 600 test
tasks.""",
        _epochs_table, _draw_epochs,
    ),
    "figure9": (
        "Training loss over the epochs for z = 1, 2, 3: Figure 9 of [M]",
        """\
The text of [M] states that the loss on the query sets converges at about the
39th, 58th and 83rd of 100 epochs. A training loss is computed from the
participants' own data and no guarantee covers it. "Converges" is read here as:
from there on the mean loss of ten steps stays within a twentieth of its whole
fall above the last.""",
        _epochs_table, _draw_losses,
    ),
    "figure10": (
        "Accuracy over tasks a step, L, and noise, z: Figure 10 of [M]",
        """\
The text of [M] states that accuracy peaks at L = 1600 for z = 1, 3200 for z = 2
and 4800 for z = 3, and that for z = 1 it falls from L = 4800 on because the
privacy budget is drained. By the tight accountant nothing is drained (the table
has both), and all points are trained to the end. The table claims an order
where intervals separate, and nowhere else.""",
        _OVER_BOTH.table, _OVER_BOTH.draw,
    ),
    "figure11": (
        "Accuracy against the privacy budget: Figure 11 of [M]",
        """\
Every step of a private run spends some of its budget, so a run that is stopped
at a budget is a point of its curve: these are the runs of figure 7, with the ε
of a participant spent so far, at δ = 1e-6, by the tight accountant. A smaller
budget needs a larger z: a curve ends where its tasks are used up. The text of
[M] states no number for this figure. Accuracies are of 600 public validation
tasks.""",
        _epochs_table, _draw_budget,
    ),
}


def _of(name: str) -> Callable[[str], list[runs_lib.Run]]:
  return lambda scale: runs(POINTS[name][scale], scale)


TARGETS = {
    name: panels.Target(
        title=title, about=_TASK + text, runs=_of(name), table=table, draw=draw
    )
    for name, (title, text, table, draw) in _PANELS.items()
}
