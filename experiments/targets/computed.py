"""Targets without training: numbers of two theorems, and times of a step."""

from collections.abc import Callable
import functools
import math
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp import training
from episodic_dp.output import plotting
from experiments import published
from experiments import runs as runs_lib
from experiments.benchmarks import harness
from experiments.benchmarks import settings
from experiments.evidence import errata
from experiments.targets import panels

# Figure 12 of [M] -------------------------------------------------------------

_TASKS = range(380_000, 560_001, 20_000)
_DELTAS = {
    "moments": "moments accountant (as published), Poisson",
    "pld": "tight (PLD), Poisson",
    "subset": "tight (PLD), random subset of fixed size",
}


def _figure12_runs(scale: str) -> list[runs_lib.Computed]:
  """Return one part for each number of training tasks."""
  return [
      runs_lib.Computed(
          name=f"tasks_{tasks}", target="figure12", scale=scale,
          labels=dict(tasks=tasks),
      )
      for tasks in _TASKS
  ]


def _finish_figure12(
    run: runs_lib.Computed, folder: str, **unused: Any
) -> dict[str, Any]:
  return runs_lib.record(
      run, folder, {"delta": errata.deltas_after_a_pass(run.labels["tasks"])}
  )


def _delta(name: str) -> panels.Cell:
  return lambda same: f"{same[0]['delta'][name]:.3g}"


_figure12_table = panels.tabled({
    "training tasks": panels.label("tasks"),
    "δ published": (
        lambda same: errata.FIGURE12.get(same[0]["labels"]["tasks"], "")
    ),
    **{text: _delta(name) for name, text in _DELTAS.items()},
})


def _draw_figure12(outcomes: panels.Outcomes, figure: Any) -> None:
  axes = figure.subplots()
  tasks = [o["labels"]["tasks"] / 1000 for o in outcomes.values()]
  for number, (name, label) in enumerate(_DELTAS.items()):
    axes.plot(
        tasks, [o["delta"][name] for o in outcomes.values()], label=label,
        **plotting.series(number),
    )
  axes.plot(
      [n / 1000 for n in errata.FIGURE12],
      [float(d) for d in errata.FIGURE12.values()],
      **panels.PUBLISHED | {"label": "published"},
  )
  axes.set_yscale("log")
  axes.set_xlabel("training tasks (thousands)")
  axes.set_ylabel("δ of a participant at ε = 1.5")
  plotting.legend_below(axes)


# The theorem of [P] -----------------------------------------------------------

_STEPS, _DELTA, _Z = 250, 1e-5, 4.0
_STEP = "one_step"
# Name -> title, hierarchy, samples of every stage.
_PLANS: dict[
    str, tuple[str, plan_lib.Hierarchy, tuple[tuple[int, ...], ...]]
] = {
    "two_stages": (
        "two stages: 1150 characters × 20 drawings",
        plan_lib.Hierarchy.regular((1150, 20), levels=("character", "drawing")),
        tuple((n, 5) for n in (5, 15, 50, 150, 500)),
    ),
    "three_stages": (
        "three stages: 30 alphabets × 38 characters × 20 drawings",
        plan_lib.Hierarchy.regular(
            (30, 38, 20), levels=("alphabet", "character", "drawing")
        ),
        tuple((n, 5, 2) for n in (1, 2, 4, 8, 16)),
    ),
    "example_3_1": (
        "Example 3.1 of [P]: 18 examples in three stages",
        errata.example(),
        ((1, 1, 1), (2, 1, 1), (2, 2, 1)),
    ),
}
_BOUNDS = {
    "corrected": "corrected (proved here)",
    "printed": "as printed (not valid)",
    "plain": "no amplification",
    "exact": "exact, of a known pair of data sets",
}


def _amplification_runs(scale: str) -> list[runs_lib.Computed]:
  """Return one part for each family of plans, and the counterexample."""
  return [
      runs_lib.Computed(
          name=name, target="amplification", scale=scale,
          labels=dict(plans=name),
      )
      for name in (*_PLANS, _STEP)
  ]


def _finish_amplification(
    run: runs_lib.Computed, folder: str, **unused: Any
) -> dict[str, Any]:
  """Compute epsilons of a family of plans, or the deltas of one step."""
  if run.name == _STEP:
    names = ("epsilon", "direction", "exact", "corrected", "printed")
    epsilons = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
    rows = []
    for *values, _ in errata.theorem3(epsilons).rows:
      rows.append(dict(zip(names, values, strict=True)))
  else:
    _, hierarchy, samples = _PLANS[run.name]
    rows = [_point(hierarchy, n) for n in samples]
  return runs_lib.record(run, folder, {"rows": rows})


def _point(
    hierarchy: plan_lib.Hierarchy, samples: tuple[int, ...]
) -> dict[str, Any]:
  """Return eta and the three epsilons of an example under one plan."""
  plan = plan_lib.SamplingPlan(tuple(map(plan_lib.FixedSize, samples)))
  leaf = hierarchy.levels[-1]
  eta = plan_lib.inclusion_rate(hierarchy, plan, leaf)
  flat = functools.partial(
      accounting.epsilon, 1.0, steps=_STEPS, delta=_DELTA
  )
  return {
      "samples": samples,
      "eta": eta,
      "corrected": accounting.guarantee(
          plan_lib.Release(
              hierarchy, plan,
              plan_lib.Mechanism(clip_unit=leaf, noise_multiplier=_Z),
          ),
          steps=_STEPS, delta=_DELTA, level=leaf,
      ).epsilon,
      "printed": flat(eta, 1 / _Z),
      # A removed example is replaced: the sum moves by twice the clip norm.
      "plain": flat(1.0, 2 / _Z),
  }


def _amplification_table(outcomes: panels.Outcomes) -> panels.Table:
  bounds = ("corrected", "printed", "plain")
  header = ["plan", "drawn a stage", "η of an example"]
  header += [f"ε, {_BOUNDS[name]}" for name in bounds]
  rows = []
  for name, outcome in outcomes.items():
    if name == _STEP:
      continue
    for row in outcome["rows"]:
      rows.append([
          _PLANS[name][0],
          " × ".join(map(str, row["samples"])),
          f"{row['eta']:.3g}",
          *(f"{row[bound]:.3g}" for bound in bounds),
      ])
  return header, rows


def _draw_amplification(outcomes: panels.Outcomes, figure: Any) -> None:
  """Plot epsilon over eta for every family; delta of one step."""
  figure.set_size_inches(plotting.WIDE, 8.0)
  for axes, (name, o) in zip(figure.subplots(2, 2).flat, outcomes.items()):
    rows = o["rows"]
    if name == _STEP:
      rows = [row for row in rows if row["direction"] == "remove"]
      title, x, y = "one step on Example 3.1, z = 1", "epsilon", "δ"
      x_label = "ε of one step"
    else:
      title, x, y = _PLANS[name][0], "eta", "ε"
      x_label = "η of an example"
    for number, (bound, label) in enumerate(_BOUNDS.items()):
      if bound in rows[0]:
        axes.plot(
            [row[x] for row in rows], [row[bound] for row in rows],
            label=label, **plotting.series(number),
        )
    axes.set(
        xscale="log", yscale="log", title=title, xlabel=x_label, ylabel=y
    )
    plotting.ticks(axes.xaxis, [float(f"{row[x]:.2g}") for row in rows])
    axes.legend()


def _found_unsound(outcomes: panels.Outcomes) -> str:
  """State by how much the printed theorem is too small."""
  rows = outcomes.get(_STEP, {}).get("rows", [])
  if not rows:
    return ""
  worst = max(rows, key=lambda row: row["exact"] / row["printed"])
  return (
      "The printed theorem is unsound: on Example 3.1, at ε ="
      f" {worst['epsilon']:g}, it claims δ = {worst['printed']:.2g} where a"
      f" pair of data sets has {worst['exact']:.2g}."
  )


# Table 4 of [M] ---------------------------------------------------------------

# Milliseconds of a task: (MAML, DP-MAML).
TIMES = {
    "omniglot": (39.9, 54.7),
    "cifar_fs": (68.7, 81.3),
    "mini_imagenet": (112.3, 102.7),
}
_KINDS = {"maml": "MAML", "dp_maml": "DP-MAML"}
# Data -> shape of an image, queries of a class, width at full size.
_DATA = {
    "omniglot": ((28, 28, 1), 1, 64),
    "cifar_fs": ((32, 32, 3), 15, 48),
    "mini_imagenet": ((84, 84, 3), 15, 48),
}
# Scale -> width (None for that of the paper), tasks a step, turns.
_SIZES: dict[str, tuple[int | None, int, int]] = {
    "smoke": (2, 2, 1), "cpu": (8, 4, 3), "full": (None, 16, 5),
}


def _table4_runs(scale: str) -> list[runs_lib.Computed]:
  """Return the two learners on the images of each data set."""
  width, tasks, repeats = _SIZES[scale]
  found = []
  for data, (_, _, full_width) in _DATA.items():
    labels = dict(
        data=data, width=width or full_width, tasks=tasks, repeats=repeats
    )
    found.append(runs_lib.Computed(
        name=data, target="table4", scale=scale, labels=labels
    ))
  return found


def _finish_table4(
    run: runs_lib.Computed, folder: str, **unused: Any
) -> dict[str, Any]:
  """Time the steps of both learners in turns."""
  smoke = run.scale == "smoke"
  tasks = run.labels["tasks"]
  shape, query, _ = _DATA[run.name]
  inner_steps = 5
  if smoke:
    inner_steps = 1

  def step(clip_norm: float, noise_multiplier: float) -> Callable[[], Any]:
    return settings.omniglot(
        inner_steps=inner_steps, query=query, width=run.labels["width"],
        tasks=tasks, shape=shape, smoke=smoke, clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
    ).advance(mesh=training.make_mesh())

  steps = {"maml": step(math.inf, 0.0), "dp_maml": step(0.25, 1.0)}
  options = harness.Options(smoke=smoke, repeats=run.labels["repeats"])
  found = harness.summaries(harness.interleaved(steps, options), tasks)
  return runs_lib.record(run, folder, {
      "per_task": found,
      "ratio": found["dp_maml"]["seconds"] / found["maml"]["seconds"],
  })


def _time(kind: str) -> panels.Cell:
  return lambda same: f"{1e3 * same[0]['per_task'][kind]['seconds']:.3g} ms"


def _printed(form: str) -> panels.Cell:
  """Return a cell of the published (not private, private) times."""
  return lambda same: form.format(*TIMES[same[0]["labels"]["data"]])


def _printed_ratio(same: panels.Same) -> str:
  plain, private = TIMES[same[0]["labels"]["data"]]
  return f"{private / plain:.2f}"


_table4_table = panels.tabled({
    "data": lambda same: published.NAMES[same[0]["labels"]["data"]],
    "width": panels.label("width"),
    **{f"{title}, here": _time(kind) for kind, title in _KINDS.items()},
    "private / not": panels.field("ratio", "{:.2f}"),
    "MAML, published": _printed("{} ms"),
    "DP-MAML, published": _printed("{1} ms"),
    "private / not, published": _printed_ratio,
})


def _draw_table4(outcomes: panels.Outcomes, figure: Any) -> None:
  """Plot milliseconds of a task, ours and published."""
  axes = figure.subplots()
  places = range(len(outcomes))
  for number, (kind, title) in enumerate(_KINDS.items()):
    here = [1e3 * o["per_task"][kind]["seconds"] for o in outcomes.values()]
    style = plotting.series(number) | {"linestyle": ""}
    axes.plot(here, places, label=f"{title}, here", **style)
    axes.plot(
        [TIMES[name][number] for name in outcomes],
        places,
        **panels.PUBLISHED
        | {"color": style["color"], "label": f"{title}, published"},
    )
  axes.set_xscale("log")
  panels.name_lines(
      axes, [published.NAMES[name] for name in outcomes],
      "milliseconds of a task", columns=4,
  )


TARGETS = {
    "figure12": panels.Target(
        title="Delta against the number of training tasks: [M] Figure 12",
        about="""\
One pass of 1600 tasks a step over 380 000 to 560 000 training tasks, z = 1: the
δ at which a participant, who owns a task, has ε = 1.5. The printed values are
those of the moments accountant, which assumes Poisson sampling of tasks. For
such tasks the tight accountant (PLD) proves far smaller values. The paper's
Algorithm 1 samples a random subset of fixed size, which costs far more. Nothing
is trained and nothing was chosen; every scale computes the same.""",
        runs=_figure12_runs, table=_figure12_table, draw=_draw_figure12,
        finish=_finish_figure12,
    ),
    "amplification": panels.Target(
        title="Amplification by sampling in stages: the printed theorem, and a"
        " valid one",
        about="""\
"Privacy Amplification for Episodic Training Methods" ([P]) samples units, then
units of these, then examples, each a random subset of fixed size. It states the
ε of an example through the probability η that a step samples it (Theorem 3).
That ε is too small: a removed example is replaced by another, which moves the
sum twice as far, and its parents determine the rest of the sample. The panels
show η and ε for two- and three-stage plans and for the paper's Example 3.1, by
the printed theorem (not valid), by the corrected one, and by plain composition
without amplification; 250 steps, noise multiplier 4 on clipped examples, δ =
1e-5. The last panel is one step on Example 3.1, where the exact δ of a known
pair of data sets is above the printed bound. Nothing is trained and nothing was
chosen.""",
        runs=_amplification_runs, table=_amplification_table,
        draw=_draw_amplification, finish=_finish_amplification,
        finding=_found_unsound,
    ),
    "table4": panels.Target(
        title="Time of a task, MAML and DP-MAML, on this machine: [M] Table 4",
        about="""\
A task is 5-way 1-shot, adapted in five inner steps of second-order MAML, as in
the paper. MAML's gradients are summed; DP-MAML's are clipped task by task,
summed and noised. The time of a whole compiled step is divided by its number of
tasks; the two take turns, and images are random. The published times are those
of one RTX 2080 Ti at width 64 (48 for colour). At the scale cpu networks are
narrow, so the times are not comparable, but the ratio of private to not private
is. No private data are used and nothing was chosen.""",
        runs=_table4_runs, table=_table4_table, draw=_draw_table4,
        finish=_finish_table4,
    ),
}
