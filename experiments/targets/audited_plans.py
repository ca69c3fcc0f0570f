"""Measured and claimed epsilon for eighteen sound plans."""

import dataclasses
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import report
from episodic_dp.auditing import canaries
from episodic_dp.auditing import claims
from episodic_dp.output import plotting
from experiments import runs as runs_lib
from experiments.targets import panels

P, F = plan.Poisson, plan.FixedSize
LEVELS = ("participant", "class", "image")
POOL = ("class", "drawing")
UNIT = plan.Episode(way=2, shot=1, query=1)
DELTA = 0.02
# A bound that is wrong once in 10^4 times, so that no test fails by chance.
CONFIDENCE = 0.9999


@dataclasses.dataclass(frozen=True)
class Case:
  """A sound configuration.

  Attributes:
    stages: sampling of each level.
    mechanism: the release.
    level: the attacked level.
    share: share of the claim that must be measured with 100 000 runs.
    sizes: sizes of a regular hierarchy.
    levels: names of its levels.
    episode: the rule that forms tasks, or None.
    steps: number of steps of a run.
  """

  stages: tuple[plan.Stage, ...]
  mechanism: plan.Mechanism
  level: str
  share: float = 0.7
  sizes: tuple[int, ...] = (20, 4, 4)
  levels: tuple[str, ...] = LEVELS
  episode: plan.Episode | None = UNIT
  steps: int = 10

  @property
  def parts(self) -> tuple[plan.Release, str]:
    """Return the release and the attacked level."""
    return plan.Release(
        plan.Hierarchy.regular(self.sizes, levels=self.levels),
        plan.SamplingPlan(self.stages, episode=self.episode),
        self.mechanism,
    ), self.level


def per_task(z: float, **fields: Any) -> plan.Mechanism:
  """Return a mechanism that clips whole tasks of participants."""
  return plan.Mechanism(
      clip_unit="participant", noise_multiplier=z, **fields
  )


def per_record(z: float, unit: str = "image") -> plan.Mechanism:
  """Return a mechanism that clips units of another level, or episodes."""
  return plan.Mechanism(clip_unit=unit, noise_multiplier=z)


def classes(
    form: Any, counts: tuple[int, int], z: float, level: str, share: float = 0.7
) -> Case:
  """Return a case of tasks of classes; counts are of all and of those drawn."""
  tasks = 4 if form == "independent" else None
  count, drawn = counts
  return Case(
      (F(drawn), F(2)), per_record(z, plan.EPISODE), level, share,
      (count, 8), POOL, dataclasses.replace(UNIT, form=form, tasks=tasks),
  )


QUANTILE: dict[str, Any] = dict(
    clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
    count_noise=3.0,
)
SAMPLE = plan.Mechanism(
    clip_unit="image", noise_multiplier=0.8, order="first", inner_steps=2,
    inner_clip_norm=1.0, inner_noise_multiplier=2.0,
)
POISSON = (P(0.2), F(2), F(2))
FIXED = (F(2), F(2), F(2))
PASS = (plan.RandomAllocation(5), F(2), F(2))
CASES = {
    "poisson participant": Case(POISSON, per_task(0.8), "participant"),
    "poisson class": Case(POISSON, per_task(0.6), "class"),
    "poisson image": Case(POISSON, per_task(0.6), "image"),
    "fixed participant": Case(FIXED, per_task(1.2), "participant"),
    "fixed class": Case(FIXED, per_task(1.0), "class"),
    "fixed image": Case(FIXED, per_task(0.8), "image"),
    "pass participant": Case(PASS, per_task(0.7), "participant"),
    "pass image": Case(PASS, per_task(0.7), "image", 0.3),
    "disjoint class": classes("disjoint", (40, 8), 1.4, "class"),
    "disjoint drawing": classes("disjoint", (40, 8), 1.0, "drawing"),
    "independent class": classes("independent", (20, 2), 2.2, "class"),
    "independent drawing": classes("independent", (20, 2), 1.6, "drawing", 0.4),
    "quantile participant": Case(
        POISSON, per_task(0.8, **QUANTILE), "participant"
    ),
    "sample-level image": Case(POISSON, SAMPLE, "image", 0.02),
    "sample-level participant": Case(
        POISSON, dataclasses.replace(SAMPLE, noise_multiplier=3.0),
        "participant",
    ),
    "dp-sgd": Case(
        (P(0.2),), per_record(0.8), "image", sizes=(20,), levels=("image",),
        episode=None,
    ),
    "two stages": Case(
        (F(1), F(1)), per_record(1.0, "drawing"), "drawing", sizes=(6, 4),
        levels=POOL, episode=None,
    ),
    "three stages": Case(
        (F(1), F(1), F(1)), per_record(0.8), "image", sizes=(4, 3, 4),
        episode=None,
    ),
}


def measured(
    case: Case, runs: int, seed: int = 0
) -> tuple[float, float]:
  """Return the claimed epsilon, and the one that an attack measures."""
  small = canaries.miniature(*case.parts)
  claim = accounting.guarantee(
      small, steps=case.steps, delta=DELTA, level=case.level
  )
  canary = canaries.worst_case(small, case.level, direction=claim.direction)
  found = claims.measure(
      canary, [case.steps], runs=runs, delta=DELTA, confidence=CONFIDENCE,
      seed=seed,
  )
  return claim.epsilon, found.bounds[case.steps].epsilon


_RUNS = {"smoke": 2000, "cpu": 100_000, "full": 1_000_000}


def runs(scale: str) -> list[runs_lib.Computed]:
  """Return one run for each row; two of them at the smallest scale."""
  names = [*CASES]
  if scale == "smoke":
    names = names[:2]
  return [
      runs_lib.Computed(
          name=name.replace(" ", "_"), target="audited_plans", scale=scale,
          labels=dict(plan=name, runs=_RUNS[scale]),
      )
      for name in names
  ]


def finish(
    run: runs_lib.Computed, folder: str, **unused: Any
) -> dict[str, Any]:
  """Attack one plan."""
  case, count = CASES[run.labels["plan"]], run.labels["runs"]
  if case.mechanism.inner_steps is not None:
    count //= 2  # Every step holds two inner steps.
  claimed, found = measured(case, count, seed=1)
  return runs_lib.record(run, folder, {
      "stages": " > ".join(map(str, case.stages)),
      "form": case.episode.form if case.episode else "no tasks",
      "level": case.level,
      "noise_multiplier": case.mechanism.noise_multiplier,
      "runs": count,
      "claimed": claimed,
      "measured": found,
  })


_table = panels.tabled({
    "plan": panels.label("plan"),
    "stages": panels.field("stages"),
    "tasks": panels.field("form"),
    "level": panels.field("level"),
    "z": panels.field("noise_multiplier", "{:g}"),
    "claimed ε, at most": (
        lambda same: report.rounded_up(same[0]["claimed"])
    ),
    "measured ε, at least": panels.field("measured", "{:.4g}"),
    "share": (
        lambda s: f"{100 * s[0]['measured'] / s[0]['claimed']:.0f} %"
    ),
    "runs with it, and without": panels.field("runs"),
})


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Plot claimed and measured, a line for each plan."""
  axes = figure.subplots()
  places = range(len(outcomes))
  for number, name in enumerate(("claimed", "measured")):
    axes.plot(
        [o[name] for o in outcomes.values()], places, label=f"{name} ε",
        **plotting.series(number) | {"linestyle": ""},
    )
  axes.set_xlim(left=0)
  panels.name_lines(
      axes, [o["labels"]["plan"] for o in outcomes.values()],
      "ε at δ = 0.02 after 10 steps",
  )


TARGETS = {
    "audited_plans": panels.Target(
        title="Measured and claimed epsilon for eighteen sound"
        " plans and levels",
        about="""\
An attacker who knows all but one record distinguishes runs of the real step
with the record from runs without it. The measured value is a lower bound on ε,
true with 99.99 % confidence for each row, at δ = 0.02 after 10 steps. A claim
that holds is never below it. Populations and plans are reduced if rates and
distances stay the same; all data are random, and no setting was chosen.

Three claims are not reached. *An image under a pass*: the claim assumes that
the step which uses the participant is known, or compares with the pass without
the participant; the attack knows neither. *A drawing in independent tasks*: the
claim assumes that the number of tasks with the class is known. *An image that
is clipped inside tasks*: the claim puts all of the image's rate on the worse of
its two roles, and lets another participant or class differ by all query
gradients of a task; the attack uses only the image's part as a query.""",
        runs=runs, table=_table, draw=draw, finish=finish,
    )
}
