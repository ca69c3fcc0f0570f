"""Puts the page together and writes it with its pictures."""

import dataclasses
import math
import pathlib
from typing import TYPE_CHECKING

from episodic_dp import plan as plan_lib
from episodic_dp.analysis.inspection import curves
from episodic_dp.analysis.inspection import frequencies
from episodic_dp.analysis.inspection import markup
from episodic_dp.analysis.inspection import page
from episodic_dp.analysis.inspection import rates as rates_lib
from episodic_dp.analysis.inspection import sheet
from episodic_dp.analysis.inspection import summary as summary_lib
from episodic_dp.analysis.inspection import tasks as tasks_lib
from episodic_dp.analysis.inspection import tree
from episodic_dp.analysis.inspection import wording
from episodic_dp.config import RunConfig
from episodic_dp.output import files
from episodic_dp.output import phases

if TYPE_CHECKING:
  from episodic_dp import data

PAGE = "index.html"
EPISODES = "episodes.png"
# Every file that this module writes; what a page lacks is removed, so that no
# picture of another page (nor a private one) stays beside it.
FILES = (
    EPISODES, "hierarchy.png", "rates.png", "frequencies.png", "epsilon.png",
    PAGE,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What is shown, and where data come from.

  Attributes:
    data: whether data are read at all.
    data_dir: folder of the data sets that are not built in.
    download: fetch what data_dir does not have.
    tasks: how many tasks are shown.
    seed: public, 0 to 2^32 - 1.
    private: show private training images in place of public ones.
  """

  data: bool = True
  data_dir: str | None = None
  download: bool = False
  tasks: int = 6
  seed: int = 0
  private: bool = False


def make(
    config: RunConfig, title: str, options: Options = Options()
) -> page.Content:
  """Computes and draws everything; reads data only where tasks are shown.

  Raises:
    PlanError, UnsoundPlanError, RunError, ValueError, FileNotFoundError: one
      sentence with the remedy.
  """
  with phases.phase("computing the guarantees"):
    summary = summary_lib.summarize(config)
  task_sheet, no_tasks = None, _no_tasks(config, summary, options)
  sent = ""
  if not no_tasks:
    with phases.phase("reading the data and drawing tasks"):
      splits = _load(config, summary, options)
      task_sheet, no_tasks = _tasks(splits, summary, options)
      sent = _sent(config, summary, splits)
  counted: tuple[frequencies.Frequencies, ...] = ()
  hierarchy, plan = summary.release.hierarchy, summary.release.plan
  not_counted = frequencies.why_not_counted(hierarchy, plan)
  if not not_counted:
    with phases.phase("counting draws"):
      counted = frequencies.count_draws(
          hierarchy, plan, summary.rates, seed=options.seed
      )
  with phases.phase("drawing the pictures"):
    return page.Content(
        title=title,
        summary=summary,
        sent=sent,
        task_sheet=task_sheet,
        no_tasks=no_tasks,
        seed=options.seed,
        counted=counted,
        not_counted=not_counted,
        pictures=_pictures(summary, counted),
    )


def write(content: page.Content, out: str) -> pathlib.Path:
  """Writes the pictures, then the page; each file is replaced at once.

  Files of the folder that are not the page's own are left alone. Where private
  images are shown, their files can be read by their owner only.

  Returns:
    The path of the page.

  Raises:
    ValueError: the folder cannot be written.
  """
  folder = pathlib.Path(out)
  made = {p.file: p.data for p in content.pictures.values()}
  private = content.task_sheet is not None and content.task_sheet.private
  with phases.phase("drawing the tasks"):
    if content.task_sheet is not None:
      made[EPISODES] = sheet.draw(
          content.task_sheet, f"{content.title}: tasks of one step"
      )
    made[PAGE] = page.render(content).encode("utf-8")
  for name in FILES:  # The page comes last, when its pictures are there.
    if name in made:
      shows_images = name in (EPISODES, PAGE)
      with files.replacing(
          folder / name, private=private and shows_images
      ) as beside:
        beside.write_bytes(made[name])
    else:
      (folder / name).unlink(missing_ok=True)
  return folder / PAGE


def _no_tasks(
    config: RunConfig, summary: summary_lib.PlanSummary, options: Options
) -> str:
  """Why no tasks can be shown before data are looked for, or ""."""
  if summary.release.plan.episode is None:
    return (
        "This plan forms no tasks (it has no episode), so there are none to"
        " show."
    )
  if not config.data.name:
    return "This config names no data, so there are no images to show."
  if not options.data:
    return "No data were read (--nodata), so there are no images to show."
  return ""


def _load(
    config: RunConfig, summary: summary_lib.PlanSummary, options: Options
) -> "data.Splits":
  """The data, whose training split is as the config says."""
  # Lazy import: a page without images needs neither JAX nor the models.
  from episodic_dp.config import build

  hierarchy = summary.release.hierarchy
  splits = build.load_data(
      config, data_dir=options.data_dir, download=options.download
  )
  build.check_same_tree(
      hierarchy, build.with_copies(splits.train, hierarchy).hierarchy
  )
  return splits


def _sent(
    config: RunConfig, summary: summary_lib.PlanSummary, splits: "data.Splits"
) -> str:
  """What a participant would send, as one sentence.

  "" where a task is not one participant's own, and where the network does not
  fit the data, which training says.
  """
  import jax

  from episodic_dp.config import learners
  from episodic_dp.private import roles

  try:
    learner = learners.make_learner(config, splits.train.image_shape)
    params = jax.eval_shape(learner.init, jax.random.key(0))
  except (ValueError, TypeError):
    return ""
  size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
  found = roles.traffic(summary.release, size, summary.steps)
  if found is None:
    return ""
  down, up, up_in_all = map(
      wording.count, (found.down, found.up, round(found.up_in_all))
  )
  return (
      f"Were the units of level '{found.participant}' on devices of their own,"
      f" a step would send each drawn one {down} bytes (the parameters) and"
      f" take {up} back (one clipped gradient); in"
      f" {wording.plural(found.steps, 'step')} one of them would send"
      f" {up_in_all} bytes in the mean."
  )


def _tasks(
    splits: "data.Splits", summary: summary_lib.PlanSummary, options: Options
) -> tuple[tasks_lib.TaskSheet | None, str]:
  """The tasks to show, or one sentence on why there are none."""
  # Lazy import: a page without images needs neither JAX nor the models.
  from episodic_dp.analysis.inspection import episodes

  plan = summary.release.plan
  if splits.train.targets:
    return None, "The data are points, so there are no images to show."
  if len(splits.train.image_shape) != 3:
    return None, (
        f"The examples are numbers of shape {splits.train.image_shape}, so"
        " there are no images to show."
    )
  shared = dict(tasks=options.tasks, seed=options.seed)
  if options.private:
    found = episodes.training_tasks(splits.train, plan, **shared)
    if found.tasks:
      return found, ""
    return None, (
        "The first step of this plan drew no task with this seed, so there are"
        " no images to show; another --seed may draw some."
    )
  try:
    return episodes.public_tasks(
        splits.validation, plan, rotate=splits.train.rotate, **shared
    ), ""
  except plan_lib.PlanError as e:
    return None, f"The public validation split cannot give such a task: {e}."


def _pictures(
    summary: summary_lib.PlanSummary,
    counted: tuple[frequencies.Frequencies, ...],
) -> dict[str, markup.Picture]:
  levels = " > ".join(summary.release.levels)
  pictures = {
      "tree": markup.Picture(
          file="hierarchy.png",
          data=tree.draw(summary.release.hierarchy, summary.release.plan),
          alt=(
              f"One family of every level ({levels}) as a row of squares, with"
              " those that a step draws filled; the table below says the same"
              " in words."
          ),
          caption=(
              "One family of every level; a chosen unit opens into the family"
              " below it. Filled squares are drawn; which ones is random."
          ),
      ),
      "rates": markup.Picture(
          file="rates.png",
          data=rates_lib.draw(summary.rates),
          alt=(
              "For every level the parent rate, the own rate and the inclusion"
              " probability on a logarithmic axis; the table below has the"
              " numbers."
          ),
          caption=(
              "The marker is the largest value over the units of a level, the"
              " line reaches down to the smallest one."
          ),
      ),
  }
  if counted:
    pictures["frequencies"] = markup.Picture(
        file="frequencies.png",
        data=frequencies.draw(counted),
        alt=(
            "Per level, bars of how many units were drawn how often in"
            f" {counted[0].steps} draws, and the expected numbers as dots on"
            " top of them."
        ),
        caption=(
            f"The sampler of training drew {counted[0].steps}"
            f" {_drawn_at_once(summary)}s with a public key; every unit was"
            " counted. Dots are what the rates above promise; 95 % of the bars"
            " of a right sampler end within the marks above and below them."
        ),
    )
  if summary.curves:
    pictures["epsilon"] = markup.Picture(
        file="epsilon.png",
        data=curves.draw(summary),
        alt=(
            "Epsilon of every level with a guarantee, rising with the steps to"
            " the values of the table."
        ),
        caption="ε after every number of steps, at the same δ.",
    )
  return pictures


def _drawn_at_once(summary: summary_lib.PlanSummary) -> str:
  """What the rates of a plan are of: a step, or one of its equal tasks."""
  episode = summary.release.plan.episode
  independent = episode is not None and episode.form == "independent"
  return "task" if independent else "step"
