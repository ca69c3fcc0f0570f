"""The sampler in plain NumPy, for training loops of other frameworks.

It reads the same `plan.Release` as the JAX sampler and the accountant, and
samples from the same distribution in the same whole-number arithmetic: 128
random bits for each number, exact binomial counts. So the charge for the
sampler's error (`plan.sampler_error`) holds for it too, and the epsilon of the
release holds for any loop that samples here, clips, and adds noise as the
release says. One key gives other samples than in JAX. Importing this module
does not import JAX.

The key is secret. Anyone who knows it knows the sample, and no amplification
remains. It has 128 bits (`secret_key`), belongs to one run, and must be kept as
long as that run may resume, readable by nobody else. Every step and stage has a
separate Philox generator, whose 128-bit key is the HMAC-SHA256 of their numbers
under the secret key. A sample is therefore a pure function of key and step, so
that a run that is stopped resumes with the same samples. `noise` uses the same
key in the same way. PyTorch's own generator on a CPU is seeded by 32 bits, few
enough to try them all.
"""

from collections.abc import Callable, Iterator, Sequence
import functools
import hmac
import math
import secrets
from typing import Any

import numpy as np

from episodic_dp import _validate
from episodic_dp import plan as plan_lib
from episodic_dp.errors import RunError
from episodic_dp.plan import sampler_error
from episodic_dp.plan import stages as stages_lib

KEY_BYTES = 16
_CHUNK = 1 << 16  # Units whose steps of a pass are computed at once.


def secret_key() -> bytes:
  """Draw the key of a new run: 128 bits from the operating system."""
  return secrets.token_bytes(KEY_BYTES)


def sample(
    key: bytes, release: plan_lib.Release, step: int
) -> tuple[np.ndarray, np.ndarray]:
  """Sample the examples of one step: Algorithm 1 for any number of stages.

  The distribution is that of `sampling.sample`, up to `plan.sampler_error`. The
  time grows with the sample, and for passes (`RandomAllocation`) with the
  number of primary units.

  Args:
    key: from `secret_key`.
    release: hierarchy and sampling plan.
    step: whole number >= 0.

  Returns:
    Indices and mask: int64 rows of the data arrays (leaf ids if the hierarchy
    has no `leaf_rows`), and bool, both [n1, .., nL] with the slots of
    `sampler_error.capacities`, after a leading [tasks] for form "independent".
    Within each unit the sampled children come first, in random order, then
    padding; masked-out slots hold 0.

  Raises:
    RunError: `key` or `step` is invalid.
  """
  _check(key, step)
  return _draw(key, release, int(step), release.plan.repeats)


def _draw(
    key: bytes,
    release: plan_lib.Release,
    step: int,
    lead: tuple[int, ...],
) -> tuple[np.ndarray, np.ndarray]:
  """Sample a whole tree, independently for each entry of `lead`."""
  hierarchy, plan = release.hierarchy, release.plan
  slots = sampler_error.capacities(hierarchy, plan)
  units, mask = np.zeros(lead, np.int64), np.ones(lead, bool)
  for k, stage in enumerate(plan.stages):
    generator = _generator(key, f"step {step}, stage {k}")
    first, children = hierarchy.families(k, units[mask])
    assigned = None
    if isinstance(stage, plan_lib.RandomAllocation):
      assigned = _assigned(key, step, int(children[0]), stage.steps)[: slots[k]]
      children = np.asarray([assigned.size])
    take = np.minimum(children, slots[k])
    if isinstance(stage, plan_lib.Poisson):
      take = _counts(generator, stage, children)
    drawn = _draw_ordered(generator, children, take)
    if assigned is not None:
      drawn = assigned[drawn]
    chosen = np.zeros((*mask.shape, slots[k]), bool)
    chosen[mask] = np.arange(slots[k]) < take[:, None]
    below = np.zeros(chosen.shape, np.int64)
    below[chosen] = np.repeat(first, take) + drawn
    units, mask = below, chosen
  if hierarchy.leaf_rows is not None:
    units = np.where(mask, hierarchy.leaf_rows[units], 0)
  return units, mask


def task_rows(
    key: bytes, release: plan_lib.Release, step: int
) -> np.ndarray:
  """Sample the tasks of one step, or its examples without an episode.

  Args:
    key: from `secret_key`.
    release: hierarchy and sampling plan.
    step: whole number >= 0.

  Returns:
    int64[tasks, way, shot + query], rows whose first `shot` columns are the
    support. Tasks that cannot be filled are left out, and there may be no task
    at all. Without an episode int64[examples]. With a random stage the number
    of tasks is private: divide a sum by the public `plan.tasks_per_step`
    instead, and add noise to an empty sum too.
  """
  indices, mask = sample(key, release, step)
  plan = release.plan
  if plan.episode is None:
    return indices[mask]
  rows, filled = group_tasks(indices, mask, release.hierarchy, plan, np)
  return rows[filled]


def noise(
    key: bytes, step: int, name: str, shape: Sequence[int]
) -> np.ndarray:
  """Draw the noise for one array of one step; multiply it by z C.

  It is a pure function of key, step and name. A step that is repeated after a
  kill has the same noise, and is not a second release if its sum is the same.
  So never repeat a step of one key with other data or another model.

  Args:
    key: from `secret_key`; anyone who knows it can subtract the noise.
    step: whole number >= 0.
    name: name of the array; each name of a step has separate noise.
    shape: of the array.

  Returns:
    float32[shape], independent standard normal numbers.

  Raises:
    RunError: `key` or `step` is invalid.
  """
  _check(key, step)
  generator = _generator(key, f"noise of step {int(step)}, {name}")
  drawn = np.random.Generator(generator).standard_normal(tuple(shape))
  return np.asarray(drawn, np.float32)


class BatchSampler:
  """Iterate over the rows of each step of a run, for PyTorch.

  Pass it to `torch.utils.data.DataLoader(batch_sampler=...)`, or iterate over
  it. A batch has the rows of all tasks of a step, task by task and class by
  class, shot + query of each class: reshape the selected rows to [tasks, way,
  shot + query, ...]. Without an episode it has the rows of the examples. A
  batch may be empty. It is still a step, and its noise must be released; give
  the loader `collate_fn=none_if_empty(torch.utils.data.default_collate)`.

  Attributes:
    release: hierarchy and sampling plan.
    steps: number of steps of the whole run.
    first_step: number of steps already taken; a resumed run continues with the
      same samples.
  """

  def __init__(
      self,
      release: plan_lib.Release,
      *,
      key: bytes,
      steps: int,
      first_step: int = 0,
  ):
    """Check the settings by drawing the first step.

    Args:
      release: hierarchy and sampling plan.
      key: from `secret_key`; for this run alone.
      steps: number of steps of the whole run.
      first_step: number of steps already taken.

    Raises:
      RunError: the key is invalid, or a number of steps is out of range.
    """
    self.release = release
    self.steps = _validate.count("steps", steps, 1)
    self.first_step = _validate.count("first_step", first_step)
    self._key = key
    self._rows(self.first_step)

  def __len__(self) -> int:
    return max(self.steps - self.first_step, 0)

  def __iter__(self) -> Iterator[list[int]]:
    return map(self._rows, range(self.first_step, self.steps))

  def _rows(self, step: int) -> list[int]:
    return task_rows(self._key, self.release, step).ravel().tolist()


def none_if_empty(collate: Callable[[list[Any]], Any]) -> Any:
  """Return a `collate_fn` that yields None for a step without examples.

  Args:
    collate: of a list of examples, such as PyTorch's `default_collate`, which
      fails on an empty one.
  """
  # A closure cannot be sent to a loader's workers.
  return functools.partial(_collated, collate)


def _collated(
    collate: Callable[[list[Any]], Any], examples: list[Any]
) -> Any:
  if not examples:
    return None
  return collate(examples)


def group_tasks(
    indices: Any,
    mask: Any,
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    xp: Any,
) -> tuple[Any, Any]:
  """Cut the slots of a sample into tasks by position alone.

  Args:
    indices: [n1, .., nL], after a leading [tasks] for form "independent".
    mask: bool, same shape.
    hierarchy: of the sample; it has the level of the classes.
    plan: of the sample, with an episode.
    xp: `numpy` or `jax.numpy`, the library that computes.

  Returns:
    Indices [tasks, way, shot + query], and mask bool[tasks], true for tasks
    that are complete.
  """
  episode = plan.task_form
  way, held = episode.way, episode.shot + episode.query
  end = stages_lib.class_level(hierarchy, plan) + 1
  end += len(plan.repeats)
  lead = int(plan.form != "disjoint")
  # The slots that form one task: of a primary unit, of all units, or of a task.
  classes = math.prod(mask.shape[lead:end])
  examples = math.prod(mask.shape[end:])
  missing = way - classes
  if not lead:
    missing %= way
  padding = [(0, 0)] * lead + [(0, missing), (0, held - examples)]

  def cut(slots: Any) -> Any:
    slots = slots.reshape(*slots.shape[:lead], classes, examples)
    return xp.pad(slots, padding).reshape(-1, way, held)

  return cut(indices), cut(mask).all(axis=(1, 2))


def _check(key: bytes, step: int) -> None:
  if not isinstance(key, bytes) or len(key) != KEY_BYTES:
    raise RunError(
        f"the key must be {KEY_BYTES} secret bytes: use"
        " numpy_sampler.secret_key()"
    )
  _validate.count("step", step)


def _generator(key: bytes, what: str) -> np.random.Philox:
  """Make the generator of one purpose, unrelated to that of any other."""
  text = f"episodic_dp numpy sampler: {what}".encode()
  derived = hmac.digest(key, text, "sha256")[:16]
  return np.random.Philox(key=int.from_bytes(derived, "big"))


def _bits(generator: np.random.Philox, count: int) -> np.ndarray:
  """Draw 128-bit numbers: uint64[count, 2], most significant word first."""
  return generator.random_raw(2 * count).reshape(count, 2)


def _uniform_below(bits: np.ndarray, n: np.ndarray | int) -> np.ndarray:
  """Compute floor(U n / 2^128) for 128-bit numbers U and n < 2^31, int64."""
  factor = np.asarray(n).astype(np.uint64)
  carry = np.zeros(len(bits), np.uint64)
  # From the least significant 32 bits up: only the carry out of the last word
  # is kept. (2^32 - 1) (2^31 - 1) + 2^32 fits 64 bits.
  for word in bits.astype(">u8").view(">u4").T[::-1].astype(np.uint64):
    carry = (word * factor + carry) >> np.uint64(32)
  return carry.astype(np.int64)


def _counts(
    generator: np.random.Philox,
    stage: plan_lib.Poisson,
    children: np.ndarray,
) -> np.ndarray:
  """Draw the number of children of each family, int64."""
  high, low = _bits(generator, children.size).T.astype(object)
  numbers, take = high << 64 | low, np.zeros_like(children)
  for size, table in sampler_error.count_tables(stage, children).items():
    of_size = children == size
    found = np.searchsorted(table.thresholds, numbers[of_size], "right")
    take[of_size] = table.first + found
  return take


def _draw_ordered(
    generator: np.random.Philox, children: np.ndarray, take: np.ndarray
) -> np.ndarray:
  """Draw the first entries of a random permutation of each family, in turn.

  Args:
    generator: of the stage.
    children: int64[families], number of children of each.
    take: int64[families], how many of them to draw.

  Returns:
    int64[sum of take]: child numbers, distinct within a family.
  """
  ends = np.cumsum(take)
  position = np.arange(take.sum())
  position -= np.repeat(ends - take, take)
  left = np.repeat(children, take) - position
  targets = position + _uniform_below(_bits(generator, position.size), left)
  result = []
  for family in np.split(targets, ends[:-1]):
    # A Fisher-Yates shuffle that stores only the entries that a swap touched.
    content: dict[int, int] = {}
    for i, j in enumerate(family.tolist()):
      result.append(content.get(j, j))
      content[j] = content.get(i, i)
  return np.asarray(result, np.int64)


def _assigned(key: bytes, step: int, units: int, steps: int) -> np.ndarray:
  """Compute the units assigned to a step of its pass, ascending, int64.

  Each unit draws one of the steps of a pass, from a generator of the pass. The
  assignment is computed again for every step, and never stored.
  """
  number, wanted = divmod(int(step), steps)
  generator = _generator(key, f"pass {number}")
  found = []
  for first in range(0, units, _CHUNK):
    bits = _bits(generator, min(_CHUNK, units - first))
    drawn = _uniform_below(bits, steps)
    found.append(first + np.flatnonzero(drawn == wanted))
  return np.concatenate(found)
