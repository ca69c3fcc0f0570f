"""Measure a run on test tasks: untrained, last checkpoint and ensemble."""

from collections.abc import Mapping
import dataclasses
import os
from typing import Any

from absl import logging
import jax

from episodic_dp import data
from episodic_dp import training
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.output import tables
from episodic_dp.run import Run
from episodic_dp.training import checkpoint
from episodic_dp.training import reporting
from episodic_dp.training import resume
from episodic_dp.training import workdir as workdir_lib

_NAMES = {
    "random": "random weights",
    "untrained": "untrained",
    "untrained_ensemble": "untrained ensemble",
    "single": "last checkpoint",
    "ensemble": "ensemble of the best",
}


def measure(
    workdir: str | os.PathLike,
    *,
    data_dir: str | None = None,
    download: bool = False,
    splits: data.Splits | None = None,
    evaluator: training.Evaluator | None = None,
    task: Mapping[str, int] | None = None,
    controls: bool = False,
    together: bool = False,
) -> dict[str, Any]:
  """Measure a run on its test tasks and write WORKDIR/evaluation.json.

  Args:
    workdir: folder of a run with a checkpoint.
    data_dir: folder of the data sets that are not built in.
    download: whether to fetch files that data_dir lacks.
    splits: the run's data, if they are loaded already.
    evaluator: evaluator of the learner of test tasks, if it is compiled.
    task: "shot", or another field of `options.Evaluation` -> its number,
      instead of the config's; nothing is written then.
    controls: whether to measure an ensemble of untrained networks too.
    together: whether to measure the last checkpoint by all queries of a task
      together too (`training.Evaluator.score`).

  Returns:
    "untrained" (the initial parameters), "single" and "ensemble" -> {"score":
    Score, "steps": steps of the checkpoints}; no ensemble if no checkpoint was
    validated. "single" may have "together", a Score. With a public start,
    "untrained" is the start, and "random" is the network without it. With
    `controls` also "untrained_ensemble", of the same number of networks with
    different initial parameters.

  Raises:
    RunError: the folder has no run, or no checkpoint.
  """
  config = Run.read(workdir).replace(
      {f"evaluation.{name}": number for name, number in (task or {}).items()}
  )
  checkpoints, last = checkpoint.latest(workdir)
  if splits is None:
    with phases.phase("reading the data", at_once=True):
      splits = config.data.load(data_dir=data_dir, download=download)
  public = config.data.validation_digest
  if public not in (None, resume.data_digest(splits.validation)):
    logging.warning(
        "the validation data are not those of %s, so that the test data may be"
        " others too: the scores are of the data that were given now", workdir,
    )
  with phases.phase("preparing the network and the test tasks"):
    shape = splits.test.image_shape
    learner, tested = config.make_learners(shape, splits.validation)
    chosen = config.evaluation
    tasks = training.sample_tasks(
        splits.test,
        count=chosen.test_tasks,
        seed=chosen.seed + 1,
        **config.task,
    )
    evaluator = evaluator or training.Evaluator(tested)

  of_steps = {}
  if config.model.start is not None:
    of_steps["random"] = [0]
  of_steps |= {"untrained": [0], "single": [last]}
  best = [step for step, _ in checkpoints.best()]
  if best:
    of_steps["ensemble"] = best
    if controls:
      of_steps["untrained_ensemble"] = [0] * len(best)
  names = _names(of_steps)
  results: dict[str, Any] = {}
  written = {}
  for name, steps in of_steps.items():
    what = f"evaluating on {len(tasks.rows)} test tasks: {names[name]}"
    with phases.phase(what, at_once=True):
      made, own = learner, evaluator
      if name == "random":  # The network without its public start.
        bare = config.replace({"model.start": None, "model.trained": "all"})
        made, tested = bare.make_learners(shape, splits.validation)
        own = training.Evaluator(tested)
      members = []
      for number, step in enumerate(steps):
        # Its own seed, and the following ones.
        member = made.init(jax.random.key(config.seed + number))
        if step:
          member, _ = checkpoints.restore(step, member)
        members.append(member)
      score = own.score(members, tasks)
    results[name] = {"score": score, "steps": steps}
    written[name] = {score.name: dataclasses.asdict(score), "steps": steps}
    if together and name == "single":
      results[name]["together"] = own.score(members, tasks, together=True)
  if task is None:
    place = workdir_lib.folder_of(workdir) / reporting.EVALUATION
    files.write_json(place, written)
  return results


def _names(found: Mapping[str, Any]) -> dict[str, str]:
  """Return key -> words; next to random weights, untrained is a start."""
  initial = reporting.initial("random" in found)
  return _NAMES | {"untrained": initial}


def table(results: dict[str, Any]) -> str:
  """Format a result of `measure` as a table."""
  names = _names(results)
  kind = reporting.words(results["single"]["score"].name)
  rows = []
  for name, result in results.items():
    score, steps = result["score"], " ".join(map(str, result["steps"]))
    rows.append((names[name], score, score.tasks, steps))
  return tables.text(("model", f"test {kind}", "tasks", "steps"), rows)
