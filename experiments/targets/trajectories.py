"""The same three trainings over their steps: figures 7, 9 and 11 of [M]."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from episodic_dp.output import plotting
from experiments import runs as runs_lib
from experiments.targets import panels
from experiments.targets import sweeps

EPOCHS = 100  # Of [M]: hundredths of the run.
NOISES = {"smoke": (1,), "cpu": (1, 2, 3), "full": (1, 2, 3)}


def noises(scale: str) -> list[runs_lib.Run]:
  """The default point at z = 1, 2 and 3."""
  return sweeps.runs([sweeps.Point(noise=z) for z in NOISES[scale]], scale)


def by_noise(
    outcomes: panels.Outcomes,
) -> dict[int, list[panels.Outcome]]:
  """z -> its runs, one for each key."""
  found: dict[int, list[panels.Outcome]] = {}
  for outcome in outcomes.values():
    found.setdefault(round(outcome["labels"]["noise"]), []).append(outcome)
  return dict(sorted(found.items()))


class Curve(NamedTuple):
  """Validation accuracy in percent over steps, its ends as `interval` says."""

  steps: list[int]
  middle: list[float]
  low: list[float]
  high: list[float]


def curve(found: Sequence[panels.Outcome]) -> Curve:
  """The validation accuracy of a point."""
  every = [o["validation"] for o in found]
  steps = every[0]["steps"]
  values = [
      [100 * sum(at) / len(at) for at in zip(*(v[name] for v in every))]
      for name in ("values", "low", "high")
  ]
  if len(every) > 1:
    over = list(zip(*(v["values"] for v in every)))
    values[1:] = [[100 * end(at) for at in over] for end in (min, max)]
  return Curve(steps, *values)


def smooth(values: Sequence[float], window: int) -> list[float]:
  """The mean of each value and of those before it, `window` at most."""
  return [
      sum(values[max(0, i + 1 - window) : i + 1]) / min(i + 1, window)
      for i in range(len(values))
  ]


def epochs(
    found: Sequence[panels.Outcome], steps: Sequence[int]
) -> list[float]:
  """Steps of a run as the paper counts them."""
  return [EPOCHS * step / found[0]["steps"] for step in steps]


def draw_curve(
    axes: Any, x: Sequence[float], drawn: Curve, number: int, label: str
) -> None:
  """A validation curve within its intervals."""
  style = plotting.series(number)
  axes.plot(x, drawn.middle, label=label, **style)
  axes.fill_between(
      x, drawn.low, drawn.high, color=style["color"], alpha=0.15, linewidth=0
  )
