"""live.html: where a run stands, as a page that a browser loads again.

The page is one file that loads nothing but itself. It is replaced at once with
every checkpoint, and stops asking for itself when the run has ended. It holds
what metrics.jsonl holds, which may be published, and no time: how long steps
take tells how many tasks they drew. How long the rest may take is worked out in
the browser, from when that saw which step.

It is for looking at, so that a run goes on without it where it cannot be
written. A process that is ended at once says so on it if it still can
(`abandon`); of one that cannot, the browser says how long the page was silent.
"""

from collections.abc import Mapping, Sequence
import html
import math
import pathlib
from typing import Any

from absl import logging
from matplotlib import ticker

from episodic_dp.accounting import report
from episodic_dp.output import files
from episodic_dp.output import plotting
from episodic_dp.training import evaluation
from episodic_dp.training import metrics
from episodic_dp.training import plots
from episodic_dp.training import reporting
from episodic_dp.training import spec as spec_lib

FILE = "live.html"

_REFRESH = 5  # Seconds after which the page is loaded again.
_WIDTH, _HEIGHT = 720, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 664, 14, 290  # The panel, in pixels.
_FEW_POINTS = 30  # More validations have no dots.
_MOST_POINTS = 300  # Of epsilon: a page stays small however long the run is.

_running: list["Page"] = []  # Those that say that their run goes on.


def abandon() -> None:
  """Says on the pages of this process that their runs end at once.

  For whoever ends the process without waiting for its steps; from any thread.
  """
  for page in list(_running):
    page.abandon()


class Page:
  """Writes the page; for the process that writes.

  Args:
    folder: the work directory.
    lines: of metrics.jsonl so far.
    spec: the run.
    level: whose epsilon the lines hold; None where no level has one.
    epsilon: of that level after all steps.
    caveat: what that epsilon must not be mistaken for, or "".
  """

  def __init__(
      self,
      folder: pathlib.Path,
      lines: Sequence[Mapping[str, Any]],
      spec: spec_lib.TrainingSpec,
      *,
      level: str | None,
      epsilon: float,
      caveat: str,
  ):
    self._path = folder / FILE
    self._spec = spec
    self._level = level
    self._epsilon = epsilon
    self._caveat = caveat
    self._spent: list[tuple[int, float]] = []
    self._scores: list[metrics.Validated] = []
    self._given_up = False
    self._shown = 0  # The step that the page tells.
    for line in lines:
      self.add(line)

  def add(self, line: Mapping[str, Any]) -> None:
    """Takes a line of metrics.jsonl."""
    tasks = self._spec.validation
    if tasks is not None:
      self._scores += metrics.validated([line], tasks.score.name)
    if self._level is not None:
      self._spent += metrics.spent([line])

  def write(self, step: int) -> None:
    """The page of a run that goes on."""
    self._write(step, f"running: step {step} of {self._spec.steps}", True)

  def end(self, step: int, stopped: str) -> None:
    """The last page of a run; `stopped` as a `Result` has it."""
    self._write(
        step, reporting.ending(step, self._spec.steps, stopped), False
    )

  def fail(self, step: int) -> None:
    """The last page of a run that an error ends, where there was a page."""
    if self._path.exists():
      self._write(
          step,
          f"ended by an error after step {step} of {self._spec.steps}: the same"
          " command goes on from the last checkpoint",
          False,
      )

  def abandon(self) -> None:
    """The last page of a run that does not wait for its step to end."""
    if self in _running:
      self._write(
          self._shown,
          f"stopped at once; saved: step {self._shown} of {self._spec.steps},"
          " from where the same command goes on",
          False,
      )

  def _write(self, step: int, state: str, running: bool) -> None:
    if self in _running:
      _running.remove(self)
    if self._given_up:
      return
    self._shown = step
    if running:
      _running.append(self)
    try:
      files.write_text(self._path, self._page(step, state, running))
    except OSError as e:
      self._given_up = True
      logging.warning(
          "%s cannot be written (%s): the run goes on without it",
          self._path,
          e.strerror or e,
      )

  def _page(self, step: int, state: str, running: bool) -> str:
    spec = self._spec
    refresh = f'<meta http-equiv="refresh" content="{_REFRESH}">\n' * running
    left = '<p id="left">&nbsp;</p>\n' * running
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>\n"
        for name, value in self._rows()
    )
    script = _SCRIPT % (step, spec.steps) if running else ""
    return _PAGE % {
        "refresh": refresh,
        "title": html.escape(f"{step} of {spec.steps} steps"),
        "state": html.escape(state),
        "left": left,
        "rows": rows,
        "picture": self._picture(),
        "script": script,
    }

  def _rows(self) -> list[tuple[str, str]]:
    """What the page says in words."""
    rows, tasks = [], self._spec.validation
    if self._scores and tasks is not None:
      last = self._scores[-1]
      score = tasks.score(
          mean=last.mean, low=last.low, high=last.high, tasks=len(tasks.rows)
      )
      rows.append((
          f"validation {reporting.words(score.name)} at step {last.step}",
          f"{score} (95 % interval over {score.tasks} public tasks)",
      ))
    if self._level is None:
      rows.append(("privacy", "no formal guarantee"))
    elif self._spent:
      step, epsilon = self._spent[-1]
      rows.append((
          f"ε of one {self._level} after step {step}",
          f"{report.rounded_up(epsilon)} at δ = {self._spec.delta:g}; after all"
          f" {self._spec.steps} steps {report.rounded_up(self._epsilon)}",
      ))
    if self._caveat:
      rows.append(("note", self._caveat))
    return rows

  def _picture(self) -> str:
    """The scores with their band, and epsilon, as SVG."""
    marks = [_x_axis(self._spec.steps)]
    if self._spec.validation is not None and self._scores:
      marks += self._score_marks(self._spec.validation)
    if self._spent:
      top = 1.1 * max(self._epsilon, self._spent[-1][1]) or 1.0
      marks.append(_y_axis(top, "ε (dashed)", plotting.GREEN, left=False))
      every = -(-len(self._spent) // _MOST_POINTS)
      kept = [*self._spent[:-1:every], self._spent[-1]]
      steps = self._spec.steps
      line = [(_x(step, steps), _y(value, top)) for step, value in kept]
      marks.append(_line(line, plotting.GREEN, dashes="7 4"))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
        f' aria-label="{html.escape(self._title())}">\n'
        + "\n".join(marks)
        + "\n</svg>"
    )

  def _score_marks(self, tasks: evaluation.Tasks) -> list[str]:
    """The axis on the left, chance, band, line and points."""
    steps, factor, top, unit = self._spec.steps, 100, 100.0, " (%)"
    if tasks.chance is None:
      highs = [s.high for s in self._scores if math.isfinite(s.high)]
      factor, top, unit = 1, max(highs, default=1.0) or 1.0, ""
    label = f"{reporting.words(tasks.score.name)}{unit}"
    marks = [_y_axis(top, label, plotting.BLUE, left=True)]
    if tasks.chance is not None:
      y = _y(factor * tasks.chance, top)
      ends = [(_LEFT, y), (_RIGHT, y)]
      marks.append(_line(ends, plotting.SOFT, dashes="2 4"))
      place = f'x="{_RIGHT - 4}" y="{y - 5:.1f}" text-anchor="end"'
      marks.append(f"<text {place}>chance</text>")
    shown = [s for s in self._scores if math.isfinite(s.mean)]
    line = [(_x(s.step, steps), _y(factor * s.mean, top)) for s in shown]
    band = [(_x(s.step, steps), _y(factor * s.low, top)) for s in shown]
    band += [
        (_x(s.step, steps), _y(factor * s.high, top)) for s in reversed(shown)
    ]
    marks.append(
        f'<polygon points="{_joined(band)}" fill="{plotting.BLUE}"'
        ' fill-opacity="0.18"/>'
    )
    marks.append(_line(line, plotting.BLUE))
    if len(line) > _FEW_POINTS:
      return marks
    marks += [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{plotting.BLUE}"/>'
        for x, y in line
    ]
    return marks

  def _title(self) -> str:
    tasks = self._spec.validation
    return "ε over the steps" if tasks is None else plots.title(tasks)


def _x(step: float, steps: int) -> float:
  return _LEFT + (_RIGHT - _LEFT) * step / steps


def _y(value: float, top: float) -> float:
  """In the panel, whatever the value is."""
  share = min(max(value / top, 0.0), 1.0)
  return _BOTTOM - (_BOTTOM - _TOP) * share


def _line(
    points: Sequence[tuple[float, float]], color: str, *, dashes: str = "none"
) -> str:
  return (
      f'<polyline points="{_joined(points)}" fill="none" stroke="{color}"'
      f' stroke-width="2.5" stroke-dasharray="{dashes}"/>'
  )


def _joined(points: Sequence[tuple[float, float]]) -> str:
  return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _ticks(top: float) -> list[float]:
  values = ticker.MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(0, top)
  return [float(v) for v in values if 0 <= v <= top * (1 + 1e-9)]


def _x_axis(steps: int) -> str:
  marks = [
      f'<path d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}V{_TOP}" fill="none"'
      f' stroke="{plotting.SOFT}"/>',
      f'<text x="{(_LEFT + _RIGHT) / 2}" y="{_BOTTOM + 42}"'
      ' text-anchor="middle">steps</text>',
  ]
  marks += [
      f'<text x="{_x(v, steps):.1f}" y="{_BOTTOM + 20}"'
      f' text-anchor="middle">{v:g}</text>'
      for v in _ticks(steps)
  ]
  return "\n".join(marks)


def _y_axis(top: float, label: str, color: str, *, left: bool) -> str:
  """Numbers and the label of an axis on one side."""
  x, anchor = (_LEFT - 8, "end") if left else (_RIGHT + 8, "start")
  middle = (_TOP + _BOTTOM) / 2
  at = 14 if left else _WIDTH - 6
  marks = [
      f'<text x="{x}" y="{_y(v, top) + 4:.1f}" text-anchor="{anchor}"'
      f' fill="{color}">{v:g}</text>'
      for v in _ticks(top)
  ]
  if left:
    marks += [
        f'<path d="M{_LEFT} {_y(v, top):.1f}H{_RIGHT}"'
        f' stroke="{plotting.PALE}"/>'
        for v in _ticks(top)[1:]
    ]
  marks.append(
      f'<text transform="translate({at} {middle}) rotate(-90)"'
      f' text-anchor="middle" fill="{color}">{html.escape(label)}</text>'
  )
  return "\n".join(marks)


_PAGE = f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none';\
 style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
%(refresh)s<link rel="icon" href="data:,">
<title>%(title)s</title>
<style>
body {{ font: 16px/1.5 sans-serif; color: {plotting.INK}; max-width: 46rem;
       margin: 1.5rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; margin-bottom: 0; }}
#left {{ margin-top: 0; color: {plotting.SOFT}; }}
table {{ border-collapse: collapse; }}
th {{ text-align: left; font-weight: normal; color: {plotting.SOFT};
     padding-right: 1.5rem; vertical-align: top; }}
svg {{ width: 100%%; height: auto; font-size: 13px;
      fill: {plotting.INK}; }}
small {{ color: {plotting.SOFT}; }}
</style>
</head>
<body>
<h1>%(state)s</h1>
%(left)s<table>
%(rows)s</table>
%(picture)s
<p><small>This page holds the numbers of metrics.jsonl and loads nothing but
itself. It holds no times, which would tell how many tasks the steps drew: your
browser works out how long the rest may take.</small></p>
%(script)s</body>
</html>
"""

# The steps that this tab has seen, and when it saw them first.
_SCRIPT = """\
<script>
(() => {
  const step = %d, steps = %d, out = document.getElementById("left");
  const head = document.querySelector("h1");
  const minutes = (ms) => ms < 90000
      ? Math.max(1, Math.round(ms / 1000)) + " s"
      : ms < 5400000 ? Math.round(ms / 60000) + " min"
      : (ms / 3600000).toFixed(1) + " h";
  try {
    const name = "live " + location.pathname, now = Date.now();
    let seen = JSON.parse(sessionStorage.getItem(name) || "[]");
    if (seen.length && seen[seen.length - 1][0] > step) seen = [];
    if (!seen.length || seen[seen.length - 1][0] < step) seen.push([step, now]);
    seen = seen.slice(-50);
    sessionStorage.setItem(name, JSON.stringify(seen));
    const first = seen[0], last = seen[seen.length - 1];
    /* Of a page that was there before this tab, the time of its file. */
    const written = Date.parse(document.lastModified);
    const few = seen.length < 2;
    const usual = few ? 0 : (last[1] - first[1]) / (seen.length - 1);
    const idle = now - last[1];
    const silent = Math.max(idle, few && written < now ? now - written : 0);
    if (silent > Math.max(few ? 600000 : 60000, 5 * usual)) {
      head.textContent = "silent for " + minutes(silent) + ": step " + step
          + " of " + steps;
      out.textContent = "the process may have ended; the same command goes on"
          + " from the last checkpoint";
    } else if (few) {
      out.textContent = "time left: known after the next checkpoint";
    } else {
      const each = (last[1] - first[1]) / (last[0] - first[0]);
      out.textContent = "about "
          + minutes(Math.max(0, each * (steps - step) - idle)) + " to go";
    }
  } catch (e) {
    out.textContent = "";
  }
})();
</script>
"""
