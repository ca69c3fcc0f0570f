"""The privacy that "Meta-Learning with Differential Privacy" prints, [M].

Every setting is computed again: by the moments accountant that [M] used, by the
tight one for tasks drawn by Poisson, and for other ways to draw them. What
"[M] prints" is copied from the paper; all other numbers are computed.
"""

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import phases as phases_lib
from episodic_dp.accounting.accountants import rdp
from episodic_dp.accounting.accountants import registry
from episodic_dp.accounting.profiles import amplification
from experiments.evidence import pages

_DELTA = 1e-6
_LOT = 1600  # Tasks of a step, but where a table says otherwise.
_MOMENTS = rdp.Moments(max_order=64)


def _release(
    participants: int, stage: plan.Stage, z: float = 1.0
) -> plan.Release:
  """Tasks of five classes of two images, each task a clip unit."""
  return plan.Release(
      plan.Hierarchy.regular(
          (participants, 5, 2), levels=("participant", "class", "image")
      ),
      plan.SamplingPlan((stage, plan.FixedSize(5), plan.FixedSize(2))),
      plan.Mechanism(clip_unit="participant", noise_multiplier=z),
  )


def epsilon(
    participants: int, stage: plan.Stage, steps: int
) -> accounting.Guarantee:
  """The guarantee of a participant: z = 1, at the delta of [M]."""
  return accounting.guarantee(
      _release(participants, stage),
      steps=steps,
      delta=_DELTA,
      level="participant",
  )


def samplers() -> pages.Table:
  """The participant of [M]'s setting, by how its tasks are drawn."""
  stages: list[tuple[str, plan.Stage]] = [
      ("Poisson(0.004)", plan.Poisson(0.004)),
      ("FixedSize(1600)", plan.FixedSize(_LOT)),
      ("RandomAllocation(250), one pass", plan.RandomAllocation(250)),
  ]
  rows = []
  for name, stage in stages:
    g = epsilon(400_000, stage, 250)
    rows.append((name, g.epsilon, g.direction))
  return pages.Table(("tasks drawn by", "ε", "larger direction"), tuple(rows))


def moments() -> pages.Table:
  """Section 6.3.3, Figure 7: the accountants beside what is printed."""
  rows = []
  for z, printed in ((1.0, 1.5), (2.0, 0.34), (3.0, 0.23)):

    def found(accountant, z=z):
      return accounting.epsilon(
          1.0, 0.004, 1 / z, steps=250, delta=_DELTA, accountant=accountant
      )

    rows.append((
        z, printed, found(rdp.Moments(max_order=256)), found(_MOMENTS),
        found("rdp"), found("pld"),
    ))
  return pages.Table(
      ("z", "[M] prints", "moments, λ ≤ 256", "moments, λ ≤ 64", "rdp", "pld"),
      tuple(rows),
  )


def mini_imagenet() -> pages.Table:
  """Table 3: 100 000 tasks of mini-ImageNet, 1600 a step, z = 1."""
  tasks = 100_000
  rate = _LOT / tasks
  rows: list[tuple[pages.Cell, ...]] = []
  for steps in (5, tasks // _LOT):
    rows.append((
        steps,
        1.5,
        accounting.epsilon(
            1.0, rate, 1.0, steps=steps, delta=_DELTA, accountant=_MOMENTS
        ),
        epsilon(tasks, plan.Poisson(rate), steps).epsilon,
        epsilon(tasks, plan.FixedSize(_LOT), steps).epsilon,
        epsilon(tasks, plan.RandomAllocation(steps), steps).epsilon
        if steps == tasks // _LOT
        else None,
    ))
  return pages.Table(
      ("steps", "[M] prints", "moments", "Poisson", "FixedSize",
       "RandomAllocation, one pass"),
      tuple(rows),
  )


def sample_level() -> pages.Table:
  """Section 6.4: 4000 tasks, 10 a step, z = 1, one pass of 400 steps."""
  rows: list[tuple[pages.Cell, ...]] = [
      (
          name,
          1.18,
          accounting.epsilon(
              1.0, 10 / 4000, 1.0, steps=400, delta=1e-5, accountant=accountant
          ),
      )
      for name, accountant in (("moments", _MOMENTS), ("pld", "pld"))
  ]
  return pages.Table(
      ("a task, drawn by Poisson(10 / 4000)", "[M] prints, for a sample", "ε"),
      tuple(rows),
  )


def lot_size() -> pages.Table:
  """Figure 10, z = 1: the steps that a budget allows, by the accountant."""
  tasks = 400_000
  rows = []
  for lot in (_LOT, 3200, 4800, 5600):
    release = _release(tasks, plan.Poisson(lot / tasks))

    def most(accountant, budget, release=release):
      return accounting.max_steps(
          release,
          target_epsilon=budget,
          delta=_DELTA,
          level="participant",
          accountant=accountant,
      )

    rows.append((
        lot,
        tasks // lot,
        *(most(a, b) for b in (1.5, 2.0) for a in (_MOMENTS, "pld")),
    ))
  return pages.Table(
      ("tasks a step", "steps of one pass", "within ε = 1.5, moments",
       "within 1.5, pld", "within ε = 2, moments", "within 2, pld"),
      tuple(rows),
  )


FIGURE12 = {380_000: "2.0e-6", 560_000: "4.2e-7"}  # Tasks -> printed delta.


def deltas_after_a_pass(tasks: int) -> dict[str, float]:
  """A participant's delta at ε = 1.5 after one pass, 1600 tasks a step, z = 1.

  Returns:
    "moments", by the accountant of [M], and "pld", both for tasks drawn by
    Poisson; "subset", for a random subset of fixed size a step.
  """

  def delta(accountant: base.Accountant, stage: plan.Stage) -> float:
    kinds = accounting.unit_profiles(_release(tasks, stage), "participant")
    run = (phases_lib.Phase(kinds, tasks // _LOT),)
    return max(
        accountant.delta(run, direction, 1.5)
        for direction in amplification.DIRECTIONS
    )

  poisson, pld = plan.Poisson(_LOT / tasks), registry.get("pld")
  return {
      "moments": delta(_MOMENTS, poisson),
      "pld": delta(pld, poisson),
      "subset": delta(pld, plan.FixedSize(_LOT)),
  }


def training_tasks() -> pages.Table:
  """Figure 12: delta at ε = 1.5 after one pass over ever more tasks."""
  rows: list[tuple[pages.Cell, ...]] = []
  for tasks, printed in FIGURE12.items():
    found = deltas_after_a_pass(tasks)
    rows.append((
        tasks, tasks // _LOT, printed, found["moments"], found["pld"]
    ))
  return pages.Table(
      ("training tasks", "steps", "[M] prints", "moments", "pld"), tuple(rows)
  )


TABLES = {
    "samplers": samplers,
    "moments": moments,
    "mini_imagenet": mini_imagenet,
    "sample_level": sample_level,
    "lot_size": lot_size,
    "training_tasks": training_tasks,
}
