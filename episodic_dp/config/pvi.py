"""Configs of `episodic-dp pvi`, and the runs that they describe."""

from collections.abc import Mapping
import dataclasses
import math
import os
from typing import Any, Literal, TypeAlias

import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import _validate
from episodic_dp import accounting
from episodic_dp import plain
from episodic_dp import plan as plan_lib
from episodic_dp import pvi
from episodic_dp.output import files
from episodic_dp.pvi import adult
from episodic_dp.pvi import federation
from episodic_dp.pvi import tables

Split: TypeAlias = Literal[
    "homogeneous", "inhomogeneous_1", "inhomogeneous_2", "one_client"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
  """The rows, and the clients that hold them.

  Attributes:
    name: data set; "own_table" is a folder with train.csv and schema.json.
    split: division of Adult.
    clients: number of clients of Adult.
    seed: public seed of the division.
  """

  name: Literal["adult", "own_table"] = "adult"
  split: Split = "homogeneous"
  clients: plain.Count = 10
  seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
  """Logistic regression and its prior.

  Attributes:
    prior_variance: prior variance of each parameter.
  """

  prior_variance: plain.Positive = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
  """The order of updates.

  Attributes:
    order: order of the visits.
    damping: share of a factor's change that is applied, above 0, at most 1.
    share: share of the clients that a round with unit="client" samples
      (Poisson); 1 for all.
  """

  order: Literal["synchronous", "sequential", "asynchronous"] = "synchronous"
  damping: float = 0.1
  share: plain.Positive = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Visit:
  """The steps of a client in one visit.

  Attributes:
    local_steps: number of steps in a visit.
    batch_share: expected share of the client's rows in a batch; with
      unit="client" a step takes all rows.
    least_batch: smallest expected number of rows in a batch.
    clip_norm: largest norm of the gradient of a row, or with unit="client" of
      the change of a client's factor.
    noise_multiplier: standard deviation of the noise, divided by clip_norm.
    rate: learning rate of Adagrad for means; its state stays with the client.
    scale_rate: learning rate of Adagrad for standard deviations.
  """

  local_steps: plain.Count = 25
  batch_share: plain.Positive = 0.02
  least_batch: plain.Count = 20
  clip_norm: float = 2.0
  noise_multiplier: float = 5.0
  rate: plain.Positive = 0.5
  scale_rate: plain.Positive = 0.5

  @classmethod
  def without_privacy(cls) -> "Visit":
    """Return a visit without clipping and without noise."""
    return cls(clip_norm=math.inf, noise_multiplier=0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
  """All fields of a config of `episodic-dp pvi`; `parse` reads them.

  Attributes:
    table: rows and clients.
    model: likelihood and prior.
    unit: privacy unit: "example" for one row, "client" for a client with all of
      its rows.
    server: order of the updates.
    visit: steps of a client.
    rounds: number of rounds of visits.
    seed: public seed of the order of visits.
    private_seed: seed of the sampling and the noise; None for a secret key. A
      fixed seed voids the guarantee for anyone who knows it.
    delta: δ of every client, above 0 and below 1; None for
      10^floor(log10(1 / rows)) with Adult, and at most a tenth of that with an
      own table; with unit="client" at most 1 / (10 clients).
    target_epsilon: largest ε of every client; None for no limit.
    checkpoint_every: number of rounds between checkpoints.
    evaluate_every: number of rounds between evaluations.
  """

  table: TableOptions = TableOptions()
  model: ModelOptions = ModelOptions()
  unit: Literal["example", "client"] = "example"
  server: Server = Server()
  visit: Visit = Visit()
  rounds: int = 100
  seed: int = 0
  private_seed: int | None = None
  delta: plain.Fraction | None = None
  target_epsilon: plain.Positive | None = None
  checkpoint_every: int = 10
  evaluate_every: int = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
  """Encoded rows.

  Attributes:
    schema: public encoding of the columns.
    train: private training rows.
    members: client -> its rows of `train`.
    validation: public validation rows, perhaps none.
    test: public test rows, perhaps none.
  """

  schema: tables.Schema
  train: tables.Table
  members: Mapping[str, np.ndarray]
  validation: tables.Table
  test: tables.Table


def parse(source: Any) -> Config:
  """Read and check a config, or a mapping of its fields.

  Raises:
    PlanError: a field is unknown or wrong.
  """
  if hasattr(source, "to_dict"):
    source = source.to_dict()
  return plain.from_plain(Config, source, name="config", partial=True)


def load(config: Config, data_dir: str | os.PathLike | None) -> Rows:
  """Read the rows and divide them among clients.

  Raises:
    PlanError, FileNotFoundError: one sentence with the remedy.
  """
  table = config.table
  if table.name == "adult":
    train, validation, test = adult.load(data_dir)
    members = {adult.ONE_CLIENT: np.arange(len(train.labels))}
    if table.split != adult.ONE_CLIENT:
      sizes, balance = adult.SPLITS[table.split]
      members = adult.divide(
          train.labels, clients=table.clients, size_factor=sizes,
          balance_factor=balance, seed=table.seed,
      )
    return Rows(
        schema=adult.SCHEMA, train=train, members=members,
        validation=validation, test=test,
    )
  if data_dir is None:
    raise plan_lib.PlanError(
        "config.table.name='own_table' without data_dir (in a command"
        " --data_dir): name the folder with train.csv and schema.json"
    )
  folder = files.path_of(data_dir)
  if not folder.is_dir():
    raise FileNotFoundError(
        f"data_dir={data_dir} is no folder: name the one with train.csv and"
        " schema.json (in a command --data_dir)"
    )
  schema = tables.read_schema(folder / "schema.json")
  train = tables.read(folder / "train.csv", schema)
  if not train.members:
    raise plan_lib.PlanError(
        f"the schema {folder / 'schema.json'} names no client column: add"
        ' "client": "COLUMN" and "clients": [...]'
    )
  public = dataclasses.replace(schema, client=None, clients=())
  empty = tables.Table(
      inputs=np.zeros((0, schema.features), np.float32),
      labels=np.zeros(0, np.int32),
      members={},
  )
  others = {"validation": empty, "test": empty}
  for part in others:
    path = folder / f"{part}.csv"
    if path.exists():
      others[part] = tables.read(path, public)
  return Rows(schema=schema, train=train, members=train.members, **others)


def build(config: Config, rows: Rows) -> pvi.Spec:
  """Build the run.

  Raises:
    PlanError, UnsoundPlanError, RunError: one sentence.
  """
  visit = config.visit
  if len(rows.schema.classes) != 2:
    raise _validate.refusal(
        "schema.classes", rows.schema.classes, "two, for logistic regression"
    )
  likelihood = pvi.LogisticRegression(rows.schema.features)
  owners = pvi.make_clients(
      rows.train.inputs, rows.train.labels, rows.members
  )
  if config.unit == federation.CLIENT:
    releases: tuple[plan_lib.Release, ...] = (
        federation.round_release(
            len(owners), share=config.server.share, clip_norm=visit.clip_norm,
            noise_multiplier=visit.noise_multiplier,
        ),
    )
    # The deltas of Adult are for its rows.
    table = TableOptions(name="own_table")
    deltas: tuple[float, ...] = (default_delta(table, len(owners)),)
  else:
    releases = tuple(
        federation.release(
            owner, batch_share=visit.batch_share,
            least_batch=visit.least_batch, clip_norm=visit.clip_norm,
            noise_multiplier=visit.noise_multiplier,
        )
        for owner in owners
    )
    deltas = tuple(
        default_delta(config.table, len(owner.images)) for owner in owners
    )
  return pvi.Spec(
      unit=config.unit,
      learner=pvi.VariationalLearner(
          likelihood, likelihood.prior(config.model.prior_variance)
      ),
      optimizer=optimizer(visit.rate, visit.scale_rate),
      clients=owners,
      releases=releases,
      deltas=tuple(config.delta or delta for delta in deltas),
      local_steps=visit.local_steps,
      target_epsilon=config.target_epsilon,
      damping=config.server.damping,
      rounds=config.rounds,
      server=config.server.order,
      validation=examples(rows.validation),
      seed=config.seed,
      private_seed=config.private_seed,
      evaluate_every=config.evaluate_every,
      checkpoint_every=config.checkpoint_every,
      # Under the names of values that may change between resumed runs.
      config={
          "steps" if name == "rounds" else name: value
          for name, value in plain.to_plain(config).items()
      },
  )


def spend(config: Config, rows: Rows, epsilon: float) -> Config:
  """Set the least noise with which all rounds spend at most a target.

  Args:
    config: its noise and its own target are replaced.
    rows: the rows, of which the numbers count.
    epsilon: the largest epsilon of every client, above 0.

  Raises:
    PlanError: epsilon cannot be reached, or the clip norm is infinite.
  """

  def changed(noise: float, target: float | None) -> Config:
    visit = dataclasses.replace(config.visit, noise_multiplier=noise)
    return dataclasses.replace(config, visit=visit, target_epsilon=target)

  _validate.positive("epsilon", epsilon)
  spec = build(changed(1.0, None), rows)
  found = [
      accounting.calibrate(
          release, steps=spec.rounds * spec.charged, epsilon=epsilon,
          delta=delta, level=spec.unit,
      ).noise_multiplier
      for release, delta in dict.fromkeys(
          zip(spec.releases, spec.deltas, strict=True)
      )
  ]
  return changed(max(found), epsilon)


def default_delta(table: TableOptions, size: int) -> float:
  """Return a delta: published for Adult, else up to 1 / (10 size)."""
  rows = size if table.name == "adult" else 10 * size
  return 10.0 ** math.floor(-math.log10(rows))


def optimizer(rate: float, scale_rate: float) -> optax.GradientTransformation:
  """Build Adagrad with a rate for means and one for standard deviations."""

  def adagrad(rate: float) -> optax.GradientTransformation:
    return optax.adagrad(rate, initial_accumulator_value=0.0, eps=1e-10)

  return optax.multi_transform(
      {"mean": adagrad(rate), "log_scale": adagrad(scale_rate)},
      {"mean": "mean", "log_scale": "log_scale"},
  )


def examples(table: tables.Table) -> pvi.Examples:
  """Return a table on the device."""
  return pvi.Examples(
      jnp.asarray(table.inputs), jnp.asarray(table.labels),
      jnp.ones(len(table.labels)),
  )
