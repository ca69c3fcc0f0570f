"""Clients, what each samples and releases, and who of them answers."""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.data import dataset as dataset_lib

LEVEL = "example"  # The unit that local privacy protects.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Client:
  """One client's examples, as the private step reads them (`data.Dataset`).

  Attributes:
    name: of the client, for messages and reports.
    inputs: float32[n, features].
    labels: int32[n], classes from 0.
    hierarchy: the examples, of which there are n; clients of one size share it.
  """

  name: str
  inputs: np.ndarray
  labels: np.ndarray
  hierarchy: plan_lib.Hierarchy

  rows = staticmethod(dataset_lib.identity)
  rotate = False
  targets = 0
  resident = True

  @property
  def images(self) -> np.ndarray:
    """The inputs as float32[n, 1, 1, features]."""
    return self.inputs[:, None, None, :]

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """(1, 1, features)."""
    return 1, 1, self.inputs.shape[1]

  @property
  def size(self) -> int:
    """n, which is public."""
    return len(self.labels)


def make_clients(
    inputs: np.ndarray, labels: np.ndarray, members: dict[str, np.ndarray]
) -> tuple[Client, ...]:
  """Make clients of some rows each.

  Args:
    inputs: [rows, features].
    labels: [rows], classes from 0.
    members: name -> rows of the client.

  Raises:
    PlanError: a row has two clients: their guarantees would not hold for it;
      or a client has none.
  """
  held = np.concatenate([np.asarray(rows) for rows in members.values()])
  values, counts = np.unique(held, return_counts=True)
  if counts.max() > 1:
    raise plan_lib.PlanError(
        f"row {values[counts.argmax()]} belongs to {counts.max()} clients: the"
        " guarantee of one client holds for rows that no other has; give every"
        " row one client"
    )
  trees: dict[int, plan_lib.Hierarchy] = {}
  made = []
  for name, rows in members.items():
    size = len(rows)
    if not size:
      raise plan_lib.PlanError(
          f"client {name!r} has no examples: leave it out, or give it some"
      )
    if size not in trees:
      trees[size] = plan_lib.Hierarchy.regular((size,), levels=(LEVEL,))
    made.append(
        Client(
            name=name,
            inputs=np.ascontiguousarray(inputs[rows], np.float32),
            labels=np.ascontiguousarray(labels[rows], np.int32),
            hierarchy=trees[size],
        )
    )
  return tuple(made)


def releases(
    members: Sequence[Client],
    *,
    batch_share: float,
    least_batch: int,
    clip_norm: float,
    noise_multiplier: float,
) -> tuple[plan_lib.Release, ...]:
  """Describe what a local step of each client samples and releases.

  Args:
    members: the clients.
    batch_share: of a client's examples that a step draws (Poisson), rounded up
      to whole examples.
    least_batch: and at least so many.
    clip_norm: of the gradient of one example's expected log likelihood.
    noise_multiplier: z; 0 for no privacy.
  """
  mechanism = plan_lib.Mechanism(
      clip_unit=LEVEL, clip_norm=clip_norm, noise_multiplier=noise_multiplier
  )
  made: dict[int, plan_lib.Release] = {}
  for client in members:
    if client.size not in made:
      batch = max(least_batch, math.ceil(batch_share * client.size))
      rate = min(1.0, batch / client.size)
      made[client.size] = plan_lib.Release(
          client.hierarchy,
          plan_lib.SamplingPlan((plan_lib.Poisson(rate),)),
          mechanism,
      )
  return tuple(made[client.size] for client in members)


def check_release(release: plan_lib.Release) -> None:
  """Refuse local steps for which the proof of `docs/pvi.md` does not hold.

  Raises:
    UnsoundPlanError: names the rule and the nearest sound setting.
  """
  stage, mechanism = release.plan.stages[-1], release.mechanism
  if len(release.levels) > 1 or release.plan.episode is not None:
    raise plan_lib.UnsoundPlanError(
        f"a client's local steps with the levels {release.levels}: the proof"
        " takes single examples of one client, so give a hierarchy of one level"
        " and no episode"
    )
  if not isinstance(stage, (plan_lib.Poisson, plan_lib.All)):
    raise plan_lib.UnsoundPlanError(
        f"a client's local steps with {stage}: a visit may be cut off or come"
        " late, and no proof covers batches that depend on one another, or on"
        " the number of examples; use Poisson(p)"
    )
  if mechanism.clipping != "fixed":
    raise plan_lib.UnsoundPlanError(
        f"a client's local steps with clipping={mechanism.clipping!r}: the"
        " server asks for the mean loss of a fixed clip norm, and no other was"
        " proved; use clipping='fixed'"
    )


def usual_delta(size: int) -> float:
  """10^floor(log10(1 / size)): the published choice, at most 1 / size."""
  return 10.0 ** math.floor(-math.log10(size))


@dataclasses.dataclass(frozen=True)
class Absence:
  """Rounds in which a client does not answer, by a public rule.

  Attributes:
    client: its number.
    first: the first such round, from 1.
    last: the last one; None for a client that never answers again.
  """

  client: int
  first: int = 1
  last: int | None = None

  def covers(self, client: int, round_: int) -> bool:
    """Return whether the client is absent in a round."""
    return (
        client == self.client
        and self.first <= round_
        and (self.last is None or round_ <= self.last)
    )
