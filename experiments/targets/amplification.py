"""Amplification by sampling in stages: the printed theorem, and what is true.

"Privacy Amplification for Episodic Training Methods" ([P]) samples units, then
units of these, then examples, each a random subset of fixed size, and states
the ε of an example through the probability η that a step draws it alone
(Theorem 3). That is too small: a removed example is replaced by another, which
moves the sum twice as far, and who else is drawn depends on its parents. Here
are η and ε over two- and three-stage plans and on the paper's Example 3.1, by
the printed theorem (not valid), by the corrected one, and by plain composition
without amplification; 250 steps, noise multiplier 4 on clipped examples,
δ = 1e-5. The last panel is one step on Example 3.1, where the exact δ of a
known pair of data sets is above the printed bound. Nothing is trained and
nothing was chosen.
"""

from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.output import plotting
from experiments import runs as runs_lib
from experiments.evidence import errata
from experiments.targets import panels

_STEPS, _DELTA, _Z = 250, 1e-5, 4.0
_STEP = "one_step"
# Name -> samples of every stage.
_SAMPLES: dict[str, tuple[tuple[int, ...], ...]] = {
    "two_stages": tuple((n, 5) for n in (5, 15, 50, 150, 500)),
    "three_stages": tuple((n, 5, 2) for n in (1, 2, 4, 8, 16)),
    "example_3_1": ((1, 1, 1), (2, 1, 1), (2, 2, 1)),
}
_TITLES = {
    "two_stages": "two stages: 1150 characters × 20 drawings",
    "three_stages": "three stages: 30 alphabets × 38 characters × 20 drawings",
    "example_3_1": "Example 3.1 of [P]: 18 examples in three stages",
}
_LINES = {
    "corrected": "corrected (proved here)",
    "printed": "as printed (not valid)",
    "plain": "no amplification",
}


def _hierarchy(name: str) -> plan_lib.Hierarchy:
  if name == "two_stages":
    return plan_lib.Hierarchy.regular(
        (1150, 20), levels=("character", "drawing")
    )
  if name == "three_stages":
    return plan_lib.Hierarchy.regular(
        (30, 38, 20), levels=("alphabet", "character", "drawing")
    )
  return errata.example()


def runs(scale: str) -> list[runs_lib.Computed]:
  """A family of plans each, and the counterexample; all cheap."""
  return [
      runs_lib.Computed(
          name=name, target="amplification", scale=scale,
          labels=dict(plans=name),
      )
      for name in (*_SAMPLES, _STEP)
  ]  # fmt: skip


def finish(
    run: runs_lib.Computed, folder: str, **shared: Any
) -> dict[str, Any]:
  """Epsilons of a family of plans; or the deltas of one step."""
  del shared
  if run.name == _STEP:
    found = errata.theorem3((0.05, 0.1, 0.2, 0.4, 0.7, 1.0))
    rows = [
        dict(zip(("epsilon", "direction", "exact", "corrected", "printed"), r))
        for r in found.rows
    ]
  else:
    rows = [_point(_hierarchy(run.name), n) for n in _SAMPLES[run.name]]
  return runs_lib.record(run, folder, {"rows": rows})


def _point(
    hierarchy: plan_lib.Hierarchy, samples: tuple[int, ...]
) -> dict[str, Any]:
  """Eta and the three epsilons of an example under one plan."""
  plan = plan_lib.SamplingPlan(tuple(map(plan_lib.FixedSize, samples)))
  leaf = hierarchy.levels[-1]
  release = plan_lib.Release(
      hierarchy, plan,
      plan_lib.Mechanism(clip_unit=leaf, clip_norm=1.0, noise_multiplier=_Z),
  )  # fmt: skip
  eta = plan_lib.inclusion_rate(hierarchy, plan, leaf)

  def flat(rate: float, distance: float) -> float:
    return accounting.epsilon(
        1.0, rate, distance, steps=_STEPS, delta=_DELTA
    )

  return {
      "samples": samples,
      "eta": eta,
      "corrected": accounting.guarantee(
          release, steps=_STEPS, delta=_DELTA, level=leaf
      ).epsilon,
      "printed": flat(eta, 1 / _Z),
      # A removed example is replaced: the sum moves by twice the clip norm.
      "plain": flat(1.0, 2 / _Z),
  }


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per plan."""
  header = [
      "plan", "drawn a stage", "η of an example",
      *(f"ε, {label}" for label in _LINES.values()),
  ]  # fmt: skip
  rows = [
      [
          _TITLES[name],
          " × ".join(map(str, row["samples"])),
          f"{row['eta']:.3g}",
          *(f"{row[line]:.3g}" for line in _LINES),
      ]
      for name, o in outcomes.items() if name != _STEP
      for row in o["rows"]
  ]  # fmt: skip
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Epsilon over eta for every family of plans; delta of one step."""
  figure.set_size_inches(plotting.WIDE, 8.0)
  for axes, (name, o) in zip(figure.subplots(2, 2).flat, outcomes.items()):
    if name == _STEP:
      rows = [r for r in o["rows"] if r["direction"] == "remove"]
      lines = {k: v for k, v in _LINES.items() if k != "plain"}
      lines["exact"] = "exact, of a known pair of data sets"
      x, label, y = "epsilon", "ε of one step", "δ"
    else:
      rows, lines = o["rows"], _LINES
      x, label, y = "eta", "η: probability of drawing an example", "ε"
    for line, legend in lines.items():
      style = plotting.series(list(_LINES).index(line)) if line in _LINES else (
          dict(color=plotting.INK, marker="x", markersize=9, linestyle="")
      )
      axes.plot(
          [r[x] for r in rows], [r[line] for r in rows], label=legend, **style
      )
    axes.set(
        xscale="linear" if name == _STEP else "log", yscale="log",
        xlabel=label, ylabel=y,
        title=_TITLES.get(name, "one step on Example 3.1, z = 1"),
    )  # fmt: skip
    if name != _STEP:
      plotting.ticks(axes.xaxis, [float(f"{r['eta']:.2g}") for r in rows])
    axes.legend()


def finding(outcomes: panels.Outcomes) -> str:
  """By how much the printed theorem is too small."""
  if set(outcomes) != {*_SAMPLES, _STEP}:
    return ""
  worst = max(
      outcomes[_STEP]["rows"], key=lambda r: r["exact"] / r["printed"]
  )
  ratios = [
      r["corrected"] / r["printed"]
      for name in _SAMPLES for r in outcomes[name]["rows"]
  ]  # fmt: skip
  return (
      "The printed theorem is unsound: on Example 3.1, at ε ="
      f" {worst['epsilon']:g}, it claims δ = {worst['printed']:.2g} where a"
      f" pair of data sets has {worst['exact']:.2g}. The corrected ε is"
      f" {min(ratios):.1f} to {max(ratios):.1f} times the printed one."
  )
