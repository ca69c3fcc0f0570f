"""Makes the folder of a trained run: whole, or not at all.

What leaves is what the run released (parameters under noise), what is public
(settings, sizes in the privacy statement, scores on public tasks, the
background of public images), and nothing else: no key, no seed of it, nothing
of private/, no name of a class or a file.
"""

import dataclasses
import json
import os
import pathlib
from typing import Any

import jax
import numpy as np

from episodic_dp import data
from episodic_dp import errors
from episodic_dp import models
from episodic_dp import training
from episodic_dp.accounting import ledger as ledger_lib
from episodic_dp.accounting import signature
from episodic_dp.accounting import statement_files
from episodic_dp.config import build
from episodic_dp.config import learners
from episodic_dp.config import RunConfig
from episodic_dp.config import saved
from episodic_dp.export import card as card_lib
from episodic_dp.export import describing
from episodic_dp.export import description as description_lib
from episodic_dp.export import folder as folder_lib
from episodic_dp.options import NETWORKS
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.training import reporting
from episodic_dp.training import saved_runs

CHOICES = ("last", "best", "ensemble")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
  """What was written.

  Attributes:
    description: of model.json.
    guarantees: level -> epsilon, delta and caveat of the privacy statement.
    unproved: the levels for which no guarantee is proved.
    evaluation: on test tasks, or None where the run was not measured.
    public_key: the fingerprint of the key that signed, or None.
  """

  description: description_lib.Description
  guarantees: dict[str, Any]
  unproved: tuple[str, ...]
  evaluation: card_lib.Evaluation | None
  public_key: str | None


def write(
    workdir: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    checkpoint: str = "last",
    signing_key: str | os.PathLike[str] | None = None,
    without_guarantee: bool = False,
    terms: str | None = None,
    data_dir: str | None = None,
    download: bool = False,
    splits: data.Splits | None = None,
) -> Exported:
  """Writes a run as a folder that `Predictor.load` reads.

  Args:
    workdir: folder of a run with a checkpoint.
    out: the folder to make.
    checkpoint: "last", "best" (on public validation tasks) or "ensemble", up
      to five of the best.
    signing_key: the file of a private key (`episodic-dp sign --new_key`).
    without_guarantee: export a run although no level has a guarantee.
    terms: the licence, as the card names it.
    data_dir: folder of the run's data, of which the shape is read, and the
      background of public test images.
    download: fetch what data_dir does not have.
    splits: the run's data, where they are loaded already.

  Raises:
    RunError, RunError, PlanError, SignatureError, WriteError: the run
      cannot be exported, or the folder not be made; one sentence.
  """
  config = saved.read(workdir)
  _check_kind(config)
  files.check_outside(out, workdir, "--workdir")
  files.check_new_folder(out)
  path = pathlib.Path(workdir) / reporting.GUARANTEE
  content = statement_files.read(path)
  verification = statement_files.compute(path, content)
  statement_files.check(path, verification)
  statement = verification.stated
  _check_guarantee(workdir, statement, without_guarantee)
  if signing_key is not None:
    signature.sign(content, signing_key)  # A wrong key ends it here.
  checkpoints, steps = _chosen(workdir, checkpoint)
  _check_steps(path, statement, checkpoints, config, steps)
  if splits is None:
    with phases.phase("reading the data", at_once=True):
      splits = build.load_data(config, data_dir=data_dir, download=download)
  learner = learners.make_learner(config, splits.test.image_shape)
  how = describing.preprocessing(config, splits.test, data_dir)
  like = learner.init(jax.random.key(0))
  with files.new_folder(out) as place:
    weights = _names_of(len(steps))
    for name, step in zip(weights, steps):
      params, _ = checkpoints.restore(step, like)
      _check_finite(params, step)
      models.write_weights(place / name, params)
    start = _write_start(config, place)
    found = describing.describe(
        config,
        learner,
        how,
        checkpoint=checkpoint,
        steps=steps,
        weights=weights,
        start=start,
    )
    evaluation = _evaluation(workdir, checkpoint, steps)
    files.write_json(place / folder_lib.MODEL, description_lib.to_json(found))
    (place / folder_lib.STATEMENT).write_bytes(content)
    facts = card_lib.Facts(
        data=config.data.name,
        levels=config.release.levels,
        evaluation=evaluation,
        terms=terms,
        guaranteed=_has_guarantee(statement),
        signed=signing_key is not None,
        transductive=learner.transductive,
    )
    files.write_text(
        place / folder_lib.CARD, card_lib.text(found, statement, facts)
    )
    public_key = _seal(place, content, signing_key)
  return Exported(
      description=found,
      guarantees=dict(statement["guarantees"]),
      unproved=tuple(statement["no_guarantee"]),
      evaluation=evaluation,
      public_key=public_key,
  )


def _has_guarantee(statement: Any) -> bool:
  """Whether a level has a finite epsilon that holds against everybody.

  That of a run whose seed is in its config does not: an integer is guessed.
  """
  return not statement["fixed_seed"] and card_lib.has_finite(statement)


def _check_kind(config: RunConfig) -> None:
  """RunError for runs whose folder could not say all of them."""
  if config.model.is_own:
    raise errors.RunError(
        f"config.model.name={config.model.name!r} is code of your own, and an"
        " exported folder executes nothing: train a network of the library"
        f" ({', '.join(NETWORKS)}), or hand out the weights alone with"
        ' python -c "from episodic_dp.analysis import saved_weights;'
        " saved_weights.save('WORKDIR', 'weights.npz')\", beside guarantee.json"
        " (with data_dir='FOLDER' where the run took --data_dir)"
    )
  if config.way < 2:
    raise errors.RunError(
        "the run predicts numbers (way 1), and what is exported tells classes"
        " apart: export a run with config.episode.way of at least 2"
    )


def _check_guarantee(
    workdir: Any, statement: Any, without_guarantee: bool
) -> None:
  if without_guarantee or _has_guarantee(statement):
    return
  why = "no level has a finite epsilon"
  if card_lib.has_finite(statement):
    why = "its config fixes private_seed: who guesses it can undo the noise"
  raise errors.RunError(
      f"the run in {os.fspath(workdir)} has no privacy guarantee ({why}): add"
      " --without_guarantee to export it all the same, and its card says so"
  )


def _chosen(
    workdir: Any, checkpoint: str
) -> tuple[training.Checkpoints, tuple[int, ...]]:
  """The checkpoints of a run, and the steps of those that are exported."""
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
  """RunError unless the statement covers the steps that are exported.

  A statement of another run holds as well as this run's own: what it is about
  has to be what these weights cost.
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
  """Writes the public weights that training left as they were, if any."""
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
  """What `episodic-dp evaluate` measured of these very checkpoints."""
  path = pathlib.Path(workdir) / reporting.EVALUATION
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


def _seal(
    place: pathlib.Path,
    statement: bytes,
    signing_key: str | os.PathLike[str] | None,
) -> str | None:
  """Writes the digests, and the signature of the statement and of them."""
  contents = {p.name: p.read_bytes() for p in sorted(place.iterdir())}
  (place / folder_lib.DIGESTS).write_bytes(folder_lib.digests(contents))
  if signing_key is None:
    return None
  signed = signature.sign(
      statement, signing_key, place / folder_lib.DIGESTS
  )
  files.write_json(place / folder_lib.SIGNATURE, signed)
  return signed["public_key"]
