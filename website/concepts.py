"""The pictures of docs/concepts.md, drawn by the library itself.

    python -m website.concepts

writes them to docs/pictures/. Samples are drawn by the sampler, and every ε is
the accountant's.
"""

from collections.abc import Sequence
import hashlib
import pathlib

from matplotlib import lines
from matplotlib import patches
import numpy as np

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.cli import app
from episodic_dp.output import plotting
from episodic_dp.sampling import numpy_sampler

FOLDER = pathlib.Path(__file__).parent.parent / "docs" / "pictures"
_PEOPLE, _CLASSES, _IMAGES = 8, 4, 5
_EPISODE = plan_lib.Episode(way=2, shot=1, query=1)
_PLAN = plan_lib.SamplingPlan(
    (plan_lib.Poisson(0.3), plan_lib.FixedSize(2), plan_lib.FixedSize(2)),
    episode=_EPISODE,
)
_LEVELS = ("participant", "class", "image")
_GAP = 0.35  # Between participants, in squares.
# A key for a picture is no secret.
_KEY = hashlib.sha256(b"pictures of docs/concepts.md").digest()[:16]


def small_release() -> plan_lib.Release:
  """Eight participants with four classes of five images each."""
  return plan_lib.Release(
      plan_lib.Hierarchy.regular(
          (_PEOPLE, _CLASSES, _IMAGES), levels=_LEVELS
      ),
      _PLAN,
      plan_lib.Mechanism(clip_unit="participant", noise_multiplier=1.0),
  )


def study_release(noise_multiplier: float = 1.0) -> plan_lib.Release:
  """The same plan's shape over as many participants as a study has."""
  return plan_lib.Release(
      plan_lib.Hierarchy.regular((8000, 8, 5), levels=_LEVELS),
      plan_lib.SamplingPlan(
          (
              plan_lib.Poisson(0.02), plan_lib.FixedSize(5),
              plan_lib.FixedSize(3),
          ),
          episode=plan_lib.Episode(way=5, shot=1, query=2),
      ),
      plan_lib.Mechanism(
          clip_unit="participant", noise_multiplier=noise_multiplier
      ),
  )  # fmt: skip


@plotting.styled
def multistage() -> plotting.Figure:
  """Three steps of one plan: who and what is drawn."""
  release = small_release()
  figure = plotting.figure(4.6, width=plotting.WIDE)
  panels = figure.subplots(1, 3)
  for step, axes in enumerate(panels):
    rows = numpy_sampler.task_rows(_KEY, release, step)
    colors = {}
    for task in rows.reshape(len(rows), _EPISODE.way, -1):
      for row in task[:, : _EPISODE.shot].ravel():
        colors[int(row)] = plotting.BLUE
      for row in task[:, _EPISODE.shot :].ravel():
        colors[int(row)] = plotting.ORANGE
    drawn = {row // (_CLASSES * _IMAGES) for row in colors}
    _squares(axes, colors)
    for person in drawn:
      _frame(axes, person, plotting.INK)
    count = len(drawn)
    axes.set_title(f"step {step}: {count} task{'s' if count != 1 else ''}")
  figure.legend(
      handles=[
          patches.Patch(facecolor=plotting.BLUE, label="support"),
          patches.Patch(
              facecolor=plotting.ORANGE, label="query", hatch="//",
              edgecolor="white",
          ),
          patches.Patch(
              facecolor="white", edgecolor=plotting.SOFT, label="not drawn"
          ),
          lines.Line2D([], [], color=plotting.INK, label="drawn participant"),
      ],
      loc="outside lower center", ncols=4,
  )  # fmt: skip
  return figure


@plotting.styled
def units() -> plotting.Figure:
  """What one unit of each level is, and what it costs in one run."""
  found = accounting.guarantees(study_release(), steps=60, delta=1e-5)
  figure = plotting.figure(4.3, width=plotting.WIDE)
  person, each = 5, _CLASSES * _IMAGES
  first = person * each + _IMAGES  # The second class of this participant.
  inside = {
      "participant": range(person * each, (person + 1) * each),
      "class": range(first, first + _IMAGES),
      "image": range(first + 2, first + 3),
  }
  for axes, (level, rows) in zip(figure.subplots(1, 3), inside.items()):
    _squares(axes, {row: plotting.VERMILLION for row in rows})
    axes.set_title(
        f"one {level}: ε = {found[level].epsilon:.3g}", fontsize=12
    )
  return figure


@plotting.styled
def guess() -> plotting.Figure:
  """How well anyone can tell whether a unit took part."""
  figure = plotting.figure(4.4)
  axes = figure.subplots()
  alarms = np.linspace(0, 1, 401)
  for i, (z, name) in enumerate(((2.0, "2"), (1.0, "1"), (0.5, "0.5"))):
    release = study_release(z)
    curve = [
        accounting.guarantee(
            release, steps=60, delta=delta, level="participant"
        )
        for delta in (1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)
    ]
    bounds = [detections(alarms, g.epsilon, g.delta) for g in curve]
    style = plotting.series(i) | {"marker": None}
    axes.plot(
        alarms, np.min(bounds, axis=0),
        label=f"noise multiplier {name}: ε = {curve[0].epsilon:.3g}", **style,
    )
  axes.plot(alarms, alarms, label="a blind guess", **plotting.REFERENCE)
  axes.set_xlabel("false alarms: says “took part” of who did not")
  axes.set_ylabel("detections, at most")
  axes.set_xlim(0, 1)
  axes.set_ylim(0, 1.02)
  axes.legend(loc="lower right")
  return figure


@plotting.styled
def samplers() -> plotting.Figure:
  """One noise, as many tasks, three ways to draw them."""
  figure = plotting.figure(4.0)
  axes = figure.subplots()
  people, tasks, last = 400_000, 1600, 250
  steps = np.unique(np.linspace(1, last, 26).round().astype(int))
  one = (plan_lib.FixedSize(5), plan_lib.FixedSize(2))
  stages: dict[str, plan_lib.Stage] = {
      "FixedSize(1600)": plan_lib.FixedSize(tasks),
      "Poisson(0.004)": plan_lib.Poisson(tasks / people),
      "RandomAllocation(250)": plan_lib.RandomAllocation(people // tasks),
  }
  for i, (name, stage) in enumerate(stages.items()):
    release = plan_lib.Release(
        plan_lib.Hierarchy.regular((people, 5, 2), levels=_LEVELS),
        plan_lib.SamplingPlan(
            (stage, *one), episode=plan_lib.Episode(way=5, shot=1, query=1)
        ),
        plan_lib.Mechanism(clip_unit="participant", noise_multiplier=1.0),
    )
    epsilons = [
        accounting.guarantee(
            release, steps=int(t), delta=1e-6, level="participant"
        ).epsilon
        for t in steps
    ]
    axes.plot(
        steps, epsilons, label=f"{name}: {report.rounded_up(epsilons[-1])}",
        **plotting.series(i) | {"marker": None},
    )
  axes.set_yscale("log")
  plotting.ticks(axes.yaxis, (0.1, 0.2, 0.5, 1, 2, 5))
  axes.set_xlabel("steps of 1600 tasks, noise multiplier 1")
  axes.set_ylabel("ε of a participant, δ = 1e-6")
  axes.legend(title="ε after 250 steps", loc="center right")
  return figure


PICTURES = {
    "guess": guess, "multistage": multistage, "samplers": samplers,
    "units": units,
}  # fmt: skip


def detections(
    alarms: np.ndarray, epsilon: float, delta: float
) -> np.ndarray:
  """The most detections at a rate of false alarms, by one (ε, δ)."""
  steep = np.exp(epsilon) * alarms + delta
  flat = 1 - np.exp(-epsilon) * (1 - delta - alarms)
  return np.clip(np.minimum(steep, flat), 0, 1)


def _squares(axes: plotting.Axes, colors: dict[int, str]) -> None:
  """All images: a column is a participant, a row of squares a class."""
  axes.axis("off")
  axes.set_aspect("equal")
  for row in range(_PEOPLE * _CLASSES * _IMAGES):
    x, y = _place(row)
    color = colors.get(row)
    axes.add_patch(patches.Rectangle(
        (x, y), 0.84, 0.84, facecolor=color or "white", linewidth=0.7,
        edgecolor="white" if color else plotting.SOFT,
        hatch="///" if color == plotting.ORANGE else None,
    ))  # fmt: skip
  across = 2 * (_IMAGES + 2 * _GAP)
  down = (_PEOPLE // 2) * (_CLASSES + 2 * _GAP)
  axes.set_xlim(-0.5, across)
  axes.set_ylim(down, -0.5)


def _place(row: int) -> tuple[float, float]:
  """The corner of an image: participants in two columns of four."""
  person, rest = divmod(row, _CLASSES * _IMAGES)
  line, column = divmod(rest, _IMAGES)
  left = (person % 2) * (_IMAGES + 2 * _GAP)
  top = (person // 2) * (_CLASSES + 2 * _GAP)
  return left + column, top + line


def _frame(axes: plotting.Axes, person: int, color: str) -> None:
  x, y = _place(person * _CLASSES * _IMAGES)
  axes.add_patch(patches.Rectangle(
      (x - 0.22, y - 0.22), _IMAGES + 0.28, _CLASSES + 0.28, fill=False,
      edgecolor=color, linewidth=1.5,
  ))  # fmt: skip


def main(argv: Sequence[str]) -> None:
  """Draws all of them."""
  del argv
  FOLDER.mkdir(exist_ok=True)
  for name, draw in PICTURES.items():
    plotting.save(draw(), FOLDER / f"{name}.png")


if __name__ == "__main__":
  app.run(main)
