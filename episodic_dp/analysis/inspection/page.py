"""The page: one HTML file that holds its pictures, without scripts or links."""

from collections.abc import Sequence
import dataclasses
import pathlib

from episodic_dp.accounting import report
from episodic_dp.analysis.inspection import frequencies
from episodic_dp.analysis.inspection import markup
from episodic_dp.analysis.inspection import sheet
from episodic_dp.analysis.inspection import summary as summary_lib
from episodic_dp.analysis.inspection import tasks as tasks_lib
from episodic_dp.analysis.inspection import wording
from episodic_dp.output import strips

_CSS = pathlib.Path(__file__).with_name("page.css")
_WARNING = (
    '<p class="warning" role="note"><strong>This page shows private training'
    " images.</strong> It is for the data holder's eyes: no noise protects"
    " what is shown, and no guarantee covers it. Do not publish or pass on"
    " this folder.</p>"
)
_CLAIM = {
    False: "nothing on this page was computed from training images.",
    True: "the images above are private.",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Content:
  """All that the page says.

  Attributes:
    title: the config's name.
    summary: plan, rates and guarantees.
    sent: one sentence on what a participant would send, or "".
    task_sheet: the tasks of the contact sheet, or None.
    no_tasks: one sentence in the place of tasks, or "".
    seed: public.
    counted: how often units were drawn, or empty.
    not_counted: one sentence in the place of counts, or "".
    pictures: "tree", "rates" and, where there are any, "frequencies" and
      "epsilon" -> picture.
  """

  title: str
  summary: summary_lib.PlanSummary
  sent: str
  task_sheet: tasks_lib.TaskSheet | None
  no_tasks: str
  seed: int
  counted: Sequence[frequencies.Frequencies]
  not_counted: str
  pictures: dict[str, markup.Picture]


def render(content: Content) -> str:
  """The whole HTML document."""
  title = markup.escaped(content.title)
  name, _, arguments = content.title.partition(":")
  private = content.task_sheet is not None and content.task_sheet.private
  parts = (
      ("plan", "Plan and hierarchy", _plan(content)),
      ("episodes", "Episodes", _episodes(content)),
      ("rates", "Inclusion probabilities", _rates(content)),
      ("guarantees", "Guarantees", _guarantees(content)),
  )
  links = "".join(f'<li><a href="#{i}">{name}</a></li>' for i, name, _ in parts)
  sections = "\n".join(
      f'<section aria-labelledby="{i}"><h2 id="{i}">{name}</h2>\n{body}'
      "</section>"
      for i, name, body in parts
  )
  return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{_CSS.read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
<h1>{markup.escaped(name)}</h1>
{f"<p><code>{markup.escaped(arguments)}</code></p>" if arguments else ""}
<p class="soft">What this plan samples and guarantees, before any training.</p>
{_WARNING if private else ""}
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>
{sections}
</main>
<footer><p>Drawn with the public seed {content.seed}, which has nothing to do
with the secret key of a run. Sizes of the hierarchy, the plan and the mechanism
are public; {_CLAIM[private]}</p></footer>
</body>
</html>
"""


def _plan(content: Content) -> str:
  summary = content.summary
  release = summary.release
  h, p, m = release.hierarchy, release.plan, release.mechanism
  rows = [
      (
          level,
          wording.count(h.num_units(k)),
          wording.family_sizes(h, k),
          wording.stage_sentence(h, p, k),
      )
      for k, level in enumerate(h.levels)
  ]
  noise = (
      f"One gradient per {m.clip_unit}, clipped to {m.clip_norm:g}"
      f"{'' if m.clipping == 'fixed' else f' at first ({m.clipping})'}, then"
      f" Gaussian noise of multiplier {m.noise_multiplier:g}"
      if m.noise_multiplier
      else f"One gradient per {m.clip_unit}, and no noise: no privacy"
  )
  return "".join((
      _paragraph(
          wording.step_sentence(h, p),
          f"{noise}; {wording.plural(summary.steps, 'step')}.",
      ),
      _paragraph(
          wording.classified_sentence(h, p),
          wording.privacy_sentence(list(summary.guarantees)),
      ),
      _paragraph(content.sent) if content.sent else "",
      markup.picture(content.pictures["tree"]),
      markup.table(
          "The hierarchy, and the stage that draws each level",
          ("level", "units", "family sizes", "stage"),
          rows,
      ),
  ))


def _paragraph(*sentences: str) -> str:
  return f"<p>{markup.escaped(' '.join(sentences))}</p>"


def _episodes(content: Content) -> str:
  drawn = content.task_sheet
  if drawn is None:
    return f"<p>{markup.escaped(content.no_tasks)}</p>"
  more = max(t.shape[1] for t in (drawn.tasks[0].support, drawn.tasks[0].query))
  cut = (
      f" Of every class the first {sheet.SHOWN} images are shown."
      if more > sheet.SHOWN
      else ""
  )
  images = (
      "These are private training images."
      if drawn.private
      else "The images are of the validation split, which is public by"
      " assumption; no training image is shown (the flag"
      " <code>--show_private_training_images</code> is for the data holder)."
  )
  return "".join((
      f"<p>{markup.escaped(drawn.how)} {images}{cut} A task adapts on its"
      ' <span class="name-support">support</span> images (solid frame) and is'
      ' judged on its <span class="name-query">query</span> images (dashed'
      " frame); labels are drawn anew for every task.</p>",
      f'<p class="soft">{markup.escaped(drawn.source)}</p>',
      _tasks(drawn),
  ))


def _tasks(drawn: tasks_lib.TaskSheet) -> str:
  first = drawn.tasks[0]
  scale = sheet.scale_of(first.support)
  columns = [
      min(sheet.SHOWN, part.shape[1]) for part in (first.support, first.query)
  ]
  cell = scale * first.support.shape[3]
  widths = [n * cell + 6 for n in columns]
  # As many tasks in a row as fit, with room for labels and gaps.
  style_of = (
      f"--task:{sum(widths) + 110}px;--support-width:{widths[0]}px;"
      f"--query-width:{widths[1]}px"
  )
  shown = "".join(_task(i + 1, task) for i, task in enumerate(drawn.tasks))
  # On a phone the query images of a wide task go below its support images.
  kind = "tasks long" if sum(columns) > 6 else "tasks"
  return f'<div class="{kind}" style="{style_of}">{shown}</div>'


def _task(number: int, task: tasks_lib.TaskImages) -> str:
  cells = [
      "<span></span>",
      '<span class="name-support">support</span>',
      '<span class="name-query">query</span>',
  ]
  for label, parts in enumerate(zip(task.support, task.query)):
    cells.append(f"<span>label {label}</span>")
    for name, images in zip(("support", "query"), parts):
      images = sheet.shown(images)
      alt = f"Task {number}, label {label}: {len(images)} {name}"
      alt += " image" if len(images) == 1 else " images"
      cells.append(
          markup.img(strips.png(strips.strip(images)), alt, f' class="{name}"')
      )
  return (
      f'<figure class="task"><figcaption>Task {number}</figcaption>'
      f'<div class="rows">{"".join(cells)}</div></figure>'
  )


def _rates(content: Content) -> str:
  summary = content.summary
  independent = (
      summary.release.plan.episode is not None
      and summary.release.plan.episode.form == "independent"
  )
  head = ["level", "parent rate q", "own rate p", "η = q p"]
  if independent:
    head[3] += " (one task)"
    head.append("η (whole step)")
  if content.counted:
    steps = content.counted[0].steps
    head += ["mean η", f"counted, {steps} draws"]
  rows = []
  for k, one in enumerate(summary.rates):
    row = [one.level, str(one.parent), str(one.own), str(one.inclusion)]
    if independent:
      row.append(str(one.per_step))
    if content.counted:
      found = content.counted[k]
      row += [
          f"{found.expected:.4g}", f"{found.observed:.4g} ± {found.error:.1g}"
      ]
    rows.append(row)
  parts = [
      "<p>The probability that one step draws a given unit: η is what privacy"
      " amplification rests on. It is the product of the unit's own rate and of"
      " the rates above it.</p>",
      markup.picture(content.pictures["rates"]),
      markup.table(
          "Rates of every level; a range where units differ", head, rows
      ),
  ]
  if summary.release.hierarchy.copies:
    parts.append(
        "<p>Records recur under other units of level"
        f" '{markup.escaped(summary.release.levels[0])}': these are the rates"
        " of one place, and a record that has several is drawn more often (see"
        " its η below, where it is counted).</p>"
    )
  if "frequencies" in content.pictures:
    parts.append(markup.picture(content.pictures["frequencies"]))
  else:
    parts.append(f"<p>{markup.escaped(content.not_counted)}</p>")
  return "".join(parts)


def _guarantees(content: Content) -> str:
  summary = content.summary
  head = ("level", "ε", "δ", "η", "neighbours", "direction", "accountant")
  rows: list[Sequence[str]] = []
  for level in summary.release.levels:
    g = summary.guarantees.get(level)
    if g is None:
      rows.append((level, "none", summary.reasons[level]))
    else:
      epsilon = report.rounded_up(g.epsilon).replace("inf", "∞")
      rows.append((
          level, epsilon, f"{g.delta:g}", f"{g.inclusion_rate:.4g}",
          g.neighbours, g.direction, g.accountant,
      ))
  parts = [
      f"<p>After {wording.plural(summary.steps, 'step')}, at δ ="
      f" {summary.delta:g}."
      " Each bounds what all released steps together tell about any one unit of"
      " its level. η is the largest probability that a step draws the unit"
      " anywhere; the direction, adding or removing the unit, is the one that"
      " needs the larger ε.</p>",
      markup.table("One guarantee per level of the hierarchy", head, rows),
  ]
  caveats = dict.fromkeys(g.caveat for g in summary.guarantees.values())
  parts += [f"<p>{markup.escaped(c)}</p>" for c in caveats if c]
  if "epsilon" in content.pictures:
    parts.append(markup.picture(content.pictures["epsilon"]))
  else:
    parts.append("<p>No level has a finite ε, so there is no curve.</p>")
  sentences: dict[str, list[str]] = {}
  for level, g in summary.guarantees.items():
    for sentence in g.assumptions:
      sentences.setdefault(sentence, []).append(level)
  if sentences:
    shared, own = [], []
    for sentence, levels in sentences.items():
      if len(levels) == len(summary.guarantees):
        shared.append(sentence)
      else:
        own.append(f"For {', '.join(levels)}: {sentence}")
    items = "".join(f"<li>{markup.escaped(s)}</li>" for s in shared + own)
    parts.append(f"<h3>What they assume</h3><ul>{items}</ul>")
  return "".join(parts)
