"""Class prototypes under noise, for adapting with a guarantee.

Formal guarantees
-----------------
The network embeds each example by itself, as e. With a public centre c its
direction is u = (e - c) / |e - c|, or 0 where that is not finite. A unit (a
person, or one example) contributes the vector of its class means of directions,
with zeros for a class of which it has none, scaled down to length `CLIP_NORM`
where it is longer. It depends on no other unit. So the sum over the units moves
by at most `CLIP_NORM` if one is added or removed, and by twice that if one is
replaced.

Noise N(0, (z CLIP_NORM)^2) is added to every coordinate of the sum, once. This
is the Gaussian mechanism; the accountant computes z from its exact curve (Balle
and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML
2018). A prototype is the direction of a class in the noised sum. Nothing else
about the examples leaves: directions need no counts.

The sum is float64, and is rounded to float32 after the noise. Not covered: the
rounding of the noise and of the embeddings, float32, whose last bits may depend
on an image's place in a block; see docs/decisions/floating_point.md.
"""

import collections
from collections.abc import Hashable, Mapping, Sequence
import dataclasses
import hashlib
import pathlib
import secrets
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from episodic_dp import models
from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import calibration
from episodic_dp.accounting import ledger as ledger_lib
from episodic_dp.accounting import report
from episodic_dp.accounting import statement as statement_lib
from episodic_dp.errors import RunError
from episodic_dp.errors import shown
from episodic_dp.export import folder
from episodic_dp.plan import labels as labels_lib

CLIP_NORM = 1.0
# Factor of the cosines, of which the probabilities are the softmax.
SHARPNESS = 8.0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Released:
  """The prototypes of an adaptation, and its privacy statement.

  Attributes:
    statement: the privacy statement, with the names of the classes.
    centre: float32[members, d], the public centre of each checkpoint.
    prototypes: float32[classes, members, d], directions under noise.
  """

  statement: Mapping[str, Any]
  centre: np.ndarray
  prototypes: np.ndarray

  @property
  def classes(self) -> tuple[Hashable, ...]:
    """Return the names of the classes, in the order of the prototypes."""
    return tuple(self.statement["classes"])

  @property
  def guarantee(self) -> report.Guarantee:
    """Return the guarantee of a unit that it was adapted to."""
    (level,) = self.statement["guarantees"]
    return statement_lib.guarantee_of(self.statement, level)

  def probabilities(self, embedded: np.ndarray) -> np.ndarray:
    """Return class probabilities float32[n, classes].

    Args:
      embedded: float32[n, members, d], the embeddings of examples.
    """
    cosines = np.einsum(
        "nmd,cmd->mnc", directions(embedded, self.centre), self.prototypes
    )
    # Lazy import: other predictions need no SciPy.
    from scipy import special

    each = special.softmax(SHARPNESS * cosines, axis=-1)
    return each.mean(axis=0).astype(np.float32)

  def encoded(self) -> bytes:
    """Return centre and prototypes as safetensors."""
    return safetensors.numpy.save(
        {"centre": self.centre, "prototypes": self.prototypes}
    )


def directions(embedded: np.ndarray, centre: np.ndarray) -> np.ndarray:
  """Return float64[..., d], the directions of embeddings from a centre.

  A direction is zero if its embedding is not finite, or is the centre.

  Args:
    embedded: float32[..., d].
    centre: float32[..., d], finite.
  """
  finite = np.isfinite(embedded).all(axis=-1, keepdims=True)
  away = np.where(finite, embedded, centre).astype(np.float64) - centre
  # No square underflows or overflows after this.
  largest = np.abs(away).max(axis=-1, keepdims=True)
  away = away / np.where(largest > 0, largest, 1)
  lengths = np.linalg.norm(away, axis=-1, keepdims=True)
  return away / np.where(lengths > 0, lengths, 1)


def contribution(
    found: np.ndarray, classes: np.ndarray, way: int
) -> np.ndarray:
  """Return float64[way, members, d], what one unit adds to the sum.

  Args:
    found: float64[n, members, d], the directions of its examples.
    classes: int[n], their classes, from 0 to way - 1.
    way: number of classes.
  """
  sums = np.zeros((way, *found.shape[1:]))
  np.add.at(sums, classes, found)
  counts = np.bincount(classes, minlength=way)
  means = sums / np.maximum(counts, 1)[:, None, None]
  length = float(np.linalg.norm(means))
  return means * (CLIP_NORM / max(CLIP_NORM, length))


def clipped_sum(
    found: np.ndarray, classes: np.ndarray, units: np.ndarray, way: int
) -> np.ndarray:
  """Return float64[way, members, d], the sum of all units' contributions.

  Args:
    found: float64[n, members, d], the directions of all examples.
    classes: int[n], their classes, from 0 to way - 1.
    units: int[n], the unit of each example.
    way: number of classes.
  """
  total = np.zeros((way, *found.shape[1:]))
  order = np.argsort(units, kind="stable")
  ends = np.flatnonzero(np.diff(units[order])) + 1
  for own in np.split(order, ends):
    total += contribution(found[own], classes[own], way)
  return total


def release(
    total: np.ndarray,
    centre: np.ndarray,
    classes: Sequence[Hashable],
    *,
    units: int,
    level: str,
    epsilon: float,
    delta: float | None = None,
    neighbours: report.Relation = "add-or-remove",
    private_seed: int | None = None,
    backbone: str | None = None,
) -> Released:
  """Add noise to a sum of contributions, and keep directions alone.

  Args:
    total: float64[classes, members, d], from `clipped_sum`.
    centre: float32[members, d].
    classes: public names.
    units: number of units, public.
    level: name of a unit.
    epsilon: the target, above 0.
    delta: in (0, 1), or None for `report.usual_delta`.
    neighbours: the relation.
    private_seed: seed of the noise, None for a secret key.
    backbone: digest of the network that made the features, None without any.

  Raises:
    PlanError: a value is out of range.
  """
  plain.read(int | None, private_seed, name="private_seed")
  if delta is None:
    delta = report.usual_delta(units)
  described = plan_lib.Release(
      plan_lib.Hierarchy.regular((units,), levels=(level,)),
      plan_lib.SamplingPlan((plan_lib.All(),)),
      plan_lib.Mechanism(
          clip_unit=level, clip_norm=CLIP_NORM, noise_multiplier=1.0
      ),
  )
  mechanism = calibration.calibrate(
      described, steps=1, epsilon=epsilon, delta=delta, level=level,
      neighbours=neighbours,
  )
  ledger = ledger_lib.Ledger().add(described.replace(mechanism=mechanism))
  statement = statement_lib.run_statement(
      ledger, delta=delta, neighbours=neighbours, classes=[*classes],
      fixed_seed=private_seed is not None, lineage=(secrets.token_hex(8),),
      backbone=backbone,
  )
  noised = _noised(
      total, mechanism.noise_multiplier * CLIP_NORM, private_seed
  )
  return Released(
      statement=statement,
      centre=centre,
      prototypes=directions(noised, np.zeros(1)).astype(np.float32),
  )


def _noised(
    total: np.ndarray, stddev: float, private_seed: int | None
) -> np.ndarray:
  """Return float32, the sum with noise under a new key, used once."""
  # Lazy imports: predictions alone load nothing that trains.
  from episodic_dp.private import keys
  from episodic_dp.private import noise

  data = None
  if private_seed is not None:
    text = f"episodic_dp private seed {private_seed} of an adaptation"
    data = hashlib.sha256(text.encode()).digest()[: keys.KEY_BYTES]
  key = keys.step_key(keys.secret_key(data), keys.NOISE, jnp.int32(0))
  drawn = noise.add_noise(key, jnp.zeros(total.shape, jnp.float32), stddev)
  # If it were rounded before, a unit could move a large sum by more.
  return (total + np.asarray(drawn, np.float64)).astype(np.float32)


def read(
    contents: Mapping[str, bytes], root: pathlib.Path, shape: tuple[int, Any]
) -> Released:
  """Read the prototypes of a folder; their statement is computed again.

  Args:
    contents: name -> bytes of every file.
    root: the folder, for messages.
    shape: (members, d) of the model.

  Raises:
    RunError, PlanError, DataError: a file is missing or damaged, or does not
      fit the model; one sentence.
  """
  place = root / folder.ADAPTATION
  verification = statement_lib.verify_file(place, contents[folder.ADAPTATION])
  verification.check(place)
  statement = verification.stated
  name = root / folder.PROTOTYPES
  arrays = folder.read_arrays(
      contents.get(folder.PROTOTYPES, b""), str(name)
  )
  classes = labels_lib.read(
      "the classes of an adaptation", statement.get("classes") or []
  ).tolist()
  wanted = {"centre": shape, "prototypes": (len(classes), *shape)}
  found = {key: array.shape for key, array in arrays.items()}
  if (
      found != wanted
      or not all(np.isfinite(array).all() for array in arrays.values())
      or len(statement["guarantees"]) != 1
      or classes != statement["classes"]
      or len({*classes}) < len(classes)
  ):
    raise RunError(
        f"{name} holds {shown(found)}, where this model and"
        f" {folder.ADAPTATION} need finite {wanted}, and the classes"
        " different names: get the folder again from its publisher"
    )
  return Released(
      statement=statement,
      **{key: array.astype(np.float32) for key, array in arrays.items()},
  )


def check_sound(found: folder.Description, network: models.Model) -> None:
  """Raise UnsoundPlanError unless an embedding depends on its image alone."""
  if found.learner.adaptation != options.CLOSED_FORM:
    raise plan_lib.UnsoundPlanError(
        f"{found.learner.name} adapts by gradient steps, in which every image"
        " moves all weights without noise: adapt with a guarantee a model of"
        f" {' or '.join(options.named(options.CLOSED_FORM))}"
    )
  if network.mixes_examples and not found.moments:
    raise plan_lib.UnsoundPlanError(
        "the network normalises by the support images, so that each moves the"
        " embeddings of the others: export a network of the library with the"
        " moments of public images or with norm='group' (in a command"
        " --config.model.norm=group), or one of your own that says"
        " mixes_examples=False"
    )


def check_shared(
    names: Sequence[Hashable],
    classes: np.ndarray,
    units: np.ndarray,
    level: str,
) -> None:
  """Raise UnsoundPlanError for a class of a single unit.

  Its name would show whether this unit is there.
  """
  held = {*zip(classes.tolist(), units.tolist())}
  counts = collections.Counter(number for number, _ in held)
  for number, count in sorted(counts.items()):
    if count == 1:
      raise plan_lib.UnsoundPlanError(
          f"class {shown(names[number])} is that of one {level} alone,"
          f" so its name shows whether this {level} is there: give all public"
          " names as classes=[...] (in a command --classes=A,B), or leave the"
          " class out"
      )
