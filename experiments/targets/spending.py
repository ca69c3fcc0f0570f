"""What a run of DP-MAML spends: as it ran, and by the accountant of the paper.

[M] is "Meta-Learning with Differential Privacy".
"""

from collections.abc import Sequence
import functools

from episodic_dp import accounting
from episodic_dp.accounting import report
from episodic_dp.accounting.accountants import rdp
from experiments.targets import budgets
from experiments.targets import panels

DELTA, BUDGET = 1e-6, 1.5  # Of [M].
COSTS = (
    "ε of a participant, as it ran",
    "ε by the accountant of [M]",
    f"z that would spend {BUDGET}",
)


@functools.lru_cache
def paper_epsilon(rate: float, steps: int, noise: float) -> float:
  """What [M] would state: by the moments accountant with λ up to 64.

  It takes the clip norm as given, which the raw percentile is not.
  """
  return accounting.guarantee(
      budgets.release(rate, noise),
      steps=steps,
      delta=DELTA,
      level=budgets.LEVEL,
      accountant=rdp.Moments(max_order=64),
  ).epsilon


@functools.lru_cache
def delta(
    rate: float, steps: int, noise: float, epsilon: float, papers: bool
) -> float:
  """Delta at a given epsilon, by the paper's accountant or the tight one."""
  return accounting.guarantee(
      budgets.release(rate, noise),
      steps=steps,
      epsilon=epsilon,
      level=budgets.LEVEL,
      accountant=rdp.Moments(max_order=64) if papers else "pld",
  ).delta


def costs(found: Sequence[panels.Outcome]) -> list[str]:
  """Cells below `COSTS`."""
  labels, steps = found[0]["labels"], found[0]["steps"]
  rate, noise = labels["rate"], labels["noise"]
  spent = panels.epsilon(found, budgets.LEVEL)
  if not noise:
    return [spent, "", ""]
  least = budgets.noise_multiplier(rate, steps, BUDGET, DELTA)
  return [
      spent,
      report.rounded_up(paper_epsilon(rate, steps, noise)),
      f"{least:.3f}",
  ]
