"""From a config of `episodic-dp pvi` to a run."""

from collections.abc import Mapping
import dataclasses
import math
import os
import pathlib
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import plan as plan_lib
from episodic_dp import pvi
from episodic_dp.accounting import checks
from episodic_dp.config import run_config
from episodic_dp.config import sections
from episodic_dp.pvi import adult
from episodic_dp.pvi import likelihoods
from episodic_dp.pvi import tables

TABLES = ("adult", "own_table")
_MODELS = ("logistic", "network")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table(sections.Section):
  """Which rows, and who holds them.

  Attributes:
    name: of `TABLES`.
    split: how Adult is dealt out: of `adult.SPLITS`, or one_client.
    clients: to how many.
    seed: public, of the dealing.
  """

  NAME = "table"

  name: str = "adult"
  split: str = "homogeneous"
  clients: int = 10
  seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(sections.Section):
  """The likelihood and its prior; see `pvi_defaults`."""

  NAME = "model"

  name: str = "logistic"
  widths: tuple[int, ...] = ()
  prior_variance: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server(sections.Section):
  """Who updates when; see `pvi_defaults`."""

  NAME = "server"

  order: str = "synchronous"
  damping: float = 0.1
  absent: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Visit(sections.Section):
  """What a client does when it is visited; see `pvi_defaults`."""

  NAME = "visit"

  local_steps: int = 25
  batch_share: float = 0.02
  least_batch: int = 20
  clip_norm: float = 2.0
  noise_multiplier: float = 5.0
  rate: float = 0.5
  scale_rate: float = 0.5


_SECTIONS: tuple[type[sections.Section], ...] = (Table, Model, Server, Visit)
_SCALARS: dict[str, Any] = {
    "seed": int, "private_seed": int, "delta": float, "target_epsilon": float,
    "rounds": int, "checkpoint_every": int, "evaluate_every": int,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
  """Everything that a config says; made by `parse`."""

  source: Mapping[str, Any]
  table: Table
  model: Model
  server: Server
  visit: Visit
  rounds: int = 100
  seed: int = 0
  private_seed: int | None = None
  delta: float | None = None
  target_epsilon: float | None = None
  checkpoint_every: int = 10
  evaluate_every: int = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
  """Encoded rows.

  Attributes:
    schema: how.
    train: private.
    members: client -> its rows of `train`.
    validation: public; perhaps none.
    test: public; perhaps none.
  """

  schema: tables.Schema
  train: tables.Table
  members: Mapping[str, np.ndarray]
  validation: tables.Table
  test: tables.Table


def parse(source: run_config.Source) -> Config:
  """Reads and checks a config.

  Raises:
    PlanError: a field is unknown or wrong; one sentence.
  """
  values = run_config.plain(source)
  known = (*_SCALARS, *(section.NAME for section in _SECTIONS))
  for name in sorted(set(values) - set(known), key=str):
    raise plan_lib.PlanError(
        f"config.{name} is not read by episodic-dp pvi: use"
        f" {', '.join(known)}, or episodic-dp train for a meta-learner"
    )
  found: dict[str, Any] = {
      name: sections.checked(name, values[name], kind)
      for name, kind in _SCALARS.items()
      if values.get(name) is not None
  }
  found |= {s.NAME: sections.parse(s, values) for s in _SECTIONS}
  config = Config(source=values, **found)
  _check(config)
  return config


def load(config: Config, data_dir: str | os.PathLike | None) -> Rows:
  """Reads the rows and deals them out.

  Raises:
    PlanError, FileNotFoundError: one sentence with the remedy.
  """
  table = config.table
  if table.name == "adult":
    parts = adult.load(data_dir)
    members = {adult.ONE_CLIENT: np.arange(len(parts.train.labels))}
    if table.split != adult.ONE_CLIENT:
      sizes, balance = adult.SPLITS[table.split]
      members = adult.deal(
          parts.train.labels, clients=table.clients, size_factor=sizes,
          balance_factor=balance, seed=table.seed,
      )  # fmt: skip
    return Rows(
        schema=adult.SCHEMA, train=parts.train, members=members,
        validation=parts.validation, test=parts.test,
    )  # fmt: skip
  if data_dir is None:
    raise plan_lib.PlanError(
        "config.table.name is 'own_table' and --data_dir is missing: name the"
        " folder with train.csv and schema.json"
    )
  folder = pathlib.Path(data_dir)
  schema = tables.read_schema(folder / "schema.json")
  train = tables.read(folder / "train.csv", schema)
  if not train.members:
    raise plan_lib.PlanError(
        f"the schema {folder / 'schema.json'} names no client column: add"
        ' "client": "COLUMN" and "clients": [...]'
    )
  public = dataclasses.replace(schema, client=None, clients=())
  others = [
      tables.read(path, public)
      if (path := folder / f"{part}.csv").exists()
      else _no_rows(schema)
      for part in ("validation", "test")
  ]
  return Rows(
      schema=schema, train=train, members=train.members,
      validation=others[0], test=others[1],
  )  # fmt: skip


def build(config: Config, rows: Rows) -> pvi.Spec:
  """The run.

  Raises:
    PlanError, UnsoundPlanError, RunError: one sentence.
  """
  visit, features = config.visit, rows.schema.features
  classes = len(rows.schema.classes)
  likelihood: likelihoods.Likelihood
  if config.model.name == "network":
    likelihood = pvi.BayesianNetwork(
        (features, *config.model.widths, classes)
    )
  elif classes != 2:
    raise plan_lib.PlanError(
        f"config.model.name is 'logistic' and the schema has {classes} classes:"
        " it tells two apart; use --config.model.name=network"
    )
  else:
    likelihood = pvi.LogisticRegression(features)
  owners = pvi.make_clients(
      rows.train.inputs, rows.train.labels, dict(rows.members)
  )
  numbers = {name: i for i, name in enumerate(rows.members)}
  return pvi.Spec(
      learner=pvi.VariationalLearner(
          likelihood, likelihood.prior(config.model.prior_variance), features,
          seed=config.seed,
      ),
      optimizer=optimizer(visit.rate, visit.scale_rate),
      clients=owners,
      budgets=pvi.Budgets(
          releases=pvi.releases(
              owners, batch_share=visit.batch_share,
              least_batch=visit.least_batch, clip_norm=visit.clip_norm,
              noise_multiplier=visit.noise_multiplier,
          ),
          deltas=tuple(
              config.delta or default_delta(config.table, c.size)
              for c in owners
          ),
          local_steps=visit.local_steps,
          target_epsilon=config.target_epsilon,
      ),
      damping=config.server.damping,
      rounds=config.rounds,
      server=config.server.order,  # type: ignore[arg-type]  # Spec checks it.
      absences=absences(config.server.absent, numbers),
      validation=examples(rows.validation),
      seed=config.seed,
      private_seed=config.private_seed,
      evaluate_every=config.evaluate_every,
      checkpoint_every=config.checkpoint_every,
      # Under the names whose values may change where a run is resumed.
      config=run_config.clean(
          {"steps" if k == "rounds" else k: v for k, v in config.source.items()}
      ),
  )  # fmt: skip


def default_delta(table: Table, size: int) -> float:
  """Of a client's rows: as published for Adult, else at most 1 / (10 rows)."""
  return pvi.usual_delta(size if table.name == "adult" else 10 * size)


def optimizer(rate: float, scale_rate: float) -> optax.GradientTransformation:
  """Adagrad, by one rate for means and another for standard deviations."""

  def adagrad(rate: float) -> optax.GradientTransformation:
    return optax.adagrad(rate, initial_accumulator_value=0.0, eps=1e-10)

  return optax.multi_transform(
      {"mean": adagrad(rate), "log_scale": adagrad(scale_rate)},
      {"mean": "mean", "log_scale": "log_scale"},
  )


def examples(table: tables.Table) -> pvi.Examples:
  """A table on the device."""
  return pvi.Examples(
      jnp.asarray(table.inputs), jnp.asarray(table.labels),
      jnp.ones(len(table.labels)),
  )  # fmt: skip


def absences(
    text: str, numbers: Mapping[str, int]
) -> tuple[pvi.Absence, ...]:
  """Reads "a,b:5-,c:5-9".

  Args:
    text: clients by name or number, and the rounds in which each is absent.
    numbers: name -> number of a client.

  Raises:
    PlanError: a part that is none.
  """
  found = []
  for part in filter(None, text.split(",")):
    match = re.fullmatch(r"([^:]+?)(?::(\d+)-(\d*))?", part.strip())
    if match is None:
      raise plan_lib.PlanError(
          f"config.server.absent has {part!r}: write a client's name or number,"
          f" and rounds as in {next(iter(numbers))}:5-9, {next(iter(numbers))}"
          ":5- or nothing for all of them"
      )
    name = match[1]
    if not (name in numbers or name.isdigit()):
      raise plan_lib.PlanError(
          f"config.server.absent has {part!r}, and no client is called"
          f" {name!r}: name one of {', '.join(numbers)}"
      )
    number = numbers[name] if name in numbers else int(name)
    first = int(match[2]) if match[2] else 1
    last = int(match[3]) if match[3] else None
    if last is not None and last < first:
      raise plan_lib.PlanError(
          f"config.server.absent has {part!r}, whose last round {last} lies"
          f" before the first, {first}: write {name}:{last}-{first}"
      )
    found.append(pvi.Absence(number, first, last))
  return tuple(found)


def _no_rows(schema: tables.Schema) -> tables.Table:
  return tables.Table(
      inputs=np.zeros((0, schema.features), np.float32),
      labels=np.zeros(0, np.int32),
      members={},
  )


def _check(config: Config) -> None:
  """PlanError for values that nothing can be built of."""
  for name, value, known in (
      ("table.name", config.table.name, TABLES),
      ("table.split", config.table.split, (*adult.SPLITS, adult.ONE_CLIENT)),
      ("model.name", config.model.name, _MODELS),
  ):
    if value not in known:
      raise plan_lib.PlanError(
          f"config.{name}={value!r} must be one of {', '.join(known)}"
      )
  if config.model.name == "logistic" and config.model.widths:
    raise plan_lib.PlanError(
        f"config.model.widths={config.model.widths} with a logistic model,"
        " which has no hidden layers: use --config.model.name=network"
    )
  visit = config.visit
  for name, number in (
      ("model.prior_variance", config.model.prior_variance),
      ("visit.batch_share", visit.batch_share),
      ("visit.rate", visit.rate),
      ("visit.scale_rate", visit.scale_rate),
  ):
    if not 0 < number < math.inf:
      raise plan_lib.PlanError(
          f"config.{name}={number!r} must be a positive number"
      )
  for name, count in (
      ("visit.local_steps", visit.local_steps),
      ("visit.least_batch", visit.least_batch),
  ):
    if count < 1:
      raise plan_lib.PlanError(
          f"config.{name}={count!r} must be a whole number of at least 1"
      )
  delta, target = config.delta, config.target_epsilon
  if delta is not None and not checks.is_delta(delta):
    raise plan_lib.PlanError(
        f"config.delta={delta!r} must lie between 0 and 1, such as 1e-4"
    )
  if target is not None and not 0 < target < math.inf:
    raise plan_lib.PlanError(
        f"config.target_epsilon={target!r} must be a positive number"
    )
