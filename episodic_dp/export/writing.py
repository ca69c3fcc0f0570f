"""Write the folder of a trained run: whole, or not at all.

It holds the releases of the run (parameters under noise) and public facts
(settings, sizes in the privacy statement, scores on public tasks), and nothing
else: no key or seed, nothing of private/, no name of a class or a file.
"""

import dataclasses
import json
import os
import pathlib
from typing import Any, get_args

import jax
import numpy as np

from episodic_dp import _version
from episodic_dp import data
from episodic_dp import errors
from episodic_dp import learners as learners_lib
from episodic_dp import models
from episodic_dp import options as options_lib
from episodic_dp import training
from episodic_dp.accounting import ledger as ledger_lib
from episodic_dp.accounting import statement as statement_lib
from episodic_dp.config import build
from episodic_dp.config import learners
from episodic_dp.config import RunConfig
from episodic_dp.config import saved
from episodic_dp.export import card as card_lib
from episodic_dp.export import description as description_lib
from episodic_dp.export import folder as folder_lib
from episodic_dp.models import parts
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.training import reporting
from episodic_dp.training import saved_runs
from episodic_dp.training import workdir as workdir_lib

CHOICES = get_args(description_lib.Choice)
# Data sets whose loaders take single pixels of larger pictures.
_NEAREST = ("omniglot",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
  """An exported folder.

  Attributes:
    description: of model.json.
    statement: the privacy statement.
    evaluation: on test tasks, or None where the run was not measured.
  """

  description: description_lib.Description
  statement: Any
  evaluation: card_lib.Evaluation | None


def write(
    workdir: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    checkpoint: description_lib.Choice = "last",
    without_guarantee: bool = False,
    data_dir: str | None = None,
    download: bool = False,
    splits: data.Splits | None = None,
) -> Exported:
  """Write a run as a folder that `Predictor.load` reads.

  Args:
    workdir: folder of a run with a checkpoint.
    out: the folder to make.
    checkpoint: "last", "best" (on public validation tasks) or "ensemble", up
      to five of the best.
    without_guarantee: export a run although no level has a guarantee.
    data_dir: folder of the run's data, whose shape is read.
    download: fetch the files that data_dir does not have.
    splits: the run's data, where they are loaded already.

  Raises:
    RunError, PlanError, OSError: the run cannot be exported, or the folder
      cannot be made; one sentence.
  """
  config = saved.read(workdir)
  _check_kind(config)
  files.check_outside(out, workdir, "--workdir")
  files.check_new_folder(out)
  path = workdir_lib.folder_of(workdir) / reporting.GUARANTEE
  verification = statement_lib.verify_file(path)
  verification.check(path)
  content = path.read_bytes()
  statement = verification.stated
  _check_guarantee(workdir, statement, without_guarantee)
  checkpoints, steps = _chosen(workdir, checkpoint)
  _check_steps(path, statement, checkpoints, config, steps)
  if splits is None:
    with phases.phase("reading the data", at_once=True):
      splits = build.load_data(config, data_dir=data_dir, download=download)
  learner = learners.make_learner(config, splits.test.image_shape)
  how = _preprocessing(config, splits.test)
  like = learner.init(jax.random.key(0))
  with files.new_folder(out) as place:
    weights = _names_of(len(steps))
    for name, step in zip(weights, steps):
      params, _ = checkpoints.restore(step, like)
      _check_finite(params, step)
      models.write_weights(place / name, params)
    start = _write_start(config, place)
    found = dataclasses.replace(
        _described(config, learner, how),
        checkpoint=checkpoint, steps=steps, weights=weights, start=start,
    )
    evaluation = _evaluation(workdir, checkpoint, steps)
    files.write_json(place / folder_lib.MODEL, description_lib.to_json(found))
    (place / folder_lib.STATEMENT).write_bytes(content)
    facts = card_lib.Facts(
        data=config.data.name,
        levels=config.release.levels,
        evaluation=evaluation,
        transductive=learner.transductive,
    )
    files.write_text(
        place / folder_lib.CARD, card_lib.text(found, statement, facts)
    )
    _seal(place)
  return Exported(
      description=found, statement=statement, evaluation=evaluation
  )


def _check_kind(config: RunConfig) -> None:
  """Raise RunError for runs that a folder cannot describe."""
  if config.model.is_own:
    raise errors.RunError(
        f"config.model.name={config.model.name!r} is code of your own, and an"
        " exported folder executes nothing: train a network of the library"
        f" ({', '.join(options_lib.NETWORKS)}), or publish the weights with"
        ' python -c "from episodic_dp.analysis import saved_weights;'
        " saved_weights.save('WORKDIR', 'weights.npz')\", with guarantee.json"
    )
  if config.way < 2:
    raise errors.RunError(
        "the run predicts numbers (way 1), and an exported model classifies:"
        " export a run with config.episode.way of at least 2"
    )


def _check_guarantee(
    workdir: Any, statement: Any, without_guarantee: bool
) -> None:
  if without_guarantee or card_lib.has_guarantee(statement):
    return
  why = "no level has a finite epsilon"
  if statement["fixed_seed"]:
    why = "its config fixes private_seed, and a guess of it undoes the noise"
  raise errors.RunError(
      f"the run in {os.fspath(workdir)} has no privacy guarantee ({why}): add"
      " --without_guarantee to export it, with a card that says so"
  )


def _chosen(
    workdir: Any, checkpoint: str
) -> tuple[training.Checkpoints, tuple[int, ...]]:
  """Return the checkpoints of a run, and the steps of the exported ones."""
  if checkpoint not in CHOICES:
    raise errors.RunError(
        f"checkpoint {checkpoint!r} must be one of {', '.join(CHOICES)}"
    )
  checkpoints, last = saved_runs.latest(workdir)
  if checkpoint == "last":
    return checkpoints, (last,)
  best = tuple(step for step, _ in checkpoints.best())
  if not best:
    raise errors.RunError(
        f"no checkpoint in {checkpoints.folder} was measured on validation"
        " tasks, so that none is the best: use --checkpoint=last"
    )
  return checkpoints, best[:1] if checkpoint == "best" else best


def _check_steps(
    path: pathlib.Path,
    statement: Any,
    checkpoints: training.Checkpoints,
    config: RunConfig,
    steps: tuple[int, ...],
) -> None:
  """Raise RunError unless the statement covers the exported steps.

  A statement of another run verifies as well: its steps must be those that
  these weights cost.
  """
  stated = ledger_lib.Ledger.from_dict(statement).entries
  for step in steps:
    saved_ledger = checkpoints.ledger(step)
    spent = ledger_lib.Ledger().add(config.release, step, continued=False)
    if saved_ledger is not None:
      spent = ledger_lib.Ledger.from_dict(saved_ledger)
    for entry in spent.entries:
      if not any(
          ledger_lib.same_description(entry, other)
          and other.steps >= entry.steps
          for other in stated
      ):
        raise errors.RunError(
            f"{path} does not cover the {step} steps of the checkpoint"
            f" {checkpoints.folder / str(step)}: resume the run, which writes"
            " it again"
        )


def _names_of(count: int) -> tuple[str, ...]:
  if count == 1:
    return ("weights.safetensors",)
  return tuple(f"weights_{i}.safetensors" for i in range(count))


def _check_finite(params: Any, step: int) -> None:
  if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
    raise errors.RunError(
        f"the checkpoint of step {step} holds NaN or infinity: export another"
        " one with --checkpoint=best, or train with a smaller rate"
    )


def _write_start(config: RunConfig, place: pathlib.Path) -> str | None:
  """Write the public weights that were not trained, if any."""
  options = config.model
  if options.start is None or options.trained == "all":
    return None
  weights = models.read_weights(options.start)
  models.write_weights(
      place / description_lib.START,
      {name: np.asarray(a, np.float32) for name, a in weights.items()},
  )
  return description_lib.START


def _evaluation(
    workdir: Any, checkpoint: str, steps: tuple[int, ...]
) -> card_lib.Evaluation | None:
  """Return the result of `episodic-dp evaluate` for these checkpoints."""
  path = workdir_lib.folder_of(workdir) / reporting.EVALUATION
  name = "ensemble" if checkpoint == "ensemble" else "single"
  if not path.exists():
    return None
  try:
    found = json.loads(path.read_text(encoding="utf-8"))[name]
    if tuple(found["steps"]) != steps:
      return None
    score = found["accuracy"]
    return card_lib.Evaluation(
        mean=float(score["mean"]),
        low=float(score["low"]),
        high=float(score["high"]),
        tasks=int(score["tasks"]),
    )
  except KeyError:
    return None
  except (OSError, ValueError, TypeError, RecursionError) as e:
    raise errors.RunError(
        f"{path} cannot be read ({type(e).__name__}): remove it, or write it"
        f" again with episodic-dp evaluate --workdir={os.fspath(workdir)}"
    ) from e


def _seal(place: pathlib.Path) -> None:
  """Write the digests of all files."""
  contents = {p.name: p.read_bytes() for p in sorted(place.iterdir())}
  (place / folder_lib.DIGESTS).write_bytes(folder_lib.digests(contents))


def _described(
    config: RunConfig,
    learner: learners_lib.Learner,
    how: description_lib.Preprocessing,
) -> description_lib.Description:
  """Describe a run, before its checkpoints are chosen."""
  supervised = config.learner.name == options_lib.SUPERVISED
  outputs = learner.model.way
  if config.learner.headless and config.model.name != "mlp":
    outputs = None
  like = jax.eval_shape(learner.init, jax.random.key(0))
  model, tests = config.model, config.evaluation
  return description_lib.Description(
      format=description_lib.FORMAT,
      written_by=f"episodic_dp {_version.__version__}",
      network=dataclasses.replace(
          model, outputs=outputs, start=None, start_digest=None,
          trained=model.trained if model.start else "all",
      ),
      learner=config.learner,
      fine_tuning=config.fine_tuning if supervised else None,
      preprocessing=how,
      task=description_lib.Task(
          way=config.way, shot=tests.shot, query=tests.query
      ),
      checkpoint="last",
      steps=(),
      weights=(),
      start=None,
      arrays=tuple(
          description_lib.Array(name=name, shape=tuple(leaf.shape))
          for name, leaf in sorted(parts.by_name(like).items())
      ),
  )


def _preprocessing(
    config: RunConfig, test: data.ArrayDataset
) -> description_lib.Preprocessing:
  """Describe how the run made its rows, by its public test split."""
  options = config.data.options

  def numbers(name: str) -> tuple[float, ...] | None:
    value = options.get(name)
    if value is None:
      return None
    several = value if isinstance(value, (tuple, list)) else (value,)
    return tuple(float(v) for v in several)

  whole = test.images.dtype == np.uint8
  # Own data of more than 8 bits are images, too.
  image = whole or len(test.image_shape) == 3
  return description_lib.Preprocessing(
      kind="image" if image else "features",
      shape=tuple(test.image_shape),
      dtype="uint8" if whole else "float32",
      divide_by=255.0 if whole else 1.0,
      resample="nearest" if config.data.name in _NEAREST else "bilinear",
      inverted=False,
      offset=numbers("offset"),
      scale=numbers("scale"),
      clip=numbers("clip"),
  )
