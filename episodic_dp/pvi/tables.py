"""Tabular data as inputs and classes, by a public schema.

What is computed from the rows (their means, their largest value, which values
of a column occur) would be one more release. So a schema says it before: the
values of every column of words, centre and scale of every column of numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
import csv
import dataclasses
import json
import math
import os
import pathlib
from typing import Any

import numpy as np

from episodic_dp import plan as plan_lib

_REMEDY = "docs/pvi.md shows one"


@dataclasses.dataclass(frozen=True)
class Number:
  """A column of numbers x, which become (f(x) - centre) / scale.

  Attributes:
    centre: a usual value.
    scale: a usual distance from it, above 0.
    log: whether f is ln(1 + x), for amounts; else it changes nothing.
  """

  centre: float = 0.0
  scale: float = 1.0
  log: bool = False

  def encode(
      self,
      words: Sequence[str],
      name: str,
      table: str,
      lines: Sequence[int],
  ) -> np.ndarray:
    """float32[rows, 1]; limited to 10 scales around the centre."""
    values = np.empty(len(words))
    for row, word in enumerate(words):
      try:
        values[row] = float(word)
      except ValueError as e:
        raise plan_lib.PlanError(
            f"line {lines[row]} of {table} has {name} '{word}', which is no"
            " number: repair it, or list the column's values in the schema"
        ) from e
    if self.log:
      values = np.log1p(np.maximum(values, 0))
    scaled = np.clip((values - self.centre) / self.scale, -10, 10)
    return np.nan_to_num(scaled)[:, None].astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Words:
  """A column of words: an indicator for each of its values, 0 for others.

  Attributes:
    values: those that are told apart.
  """

  values: tuple[str, ...]

  def encode(
      self,
      words: Sequence[str],
      name: str,
      table: str,
      lines: Sequence[int],
  ) -> np.ndarray:
    """float32[rows, values]."""
    del name, table, lines
    column = np.asarray(words)
    return (column[:, None] == np.asarray(self.values)).astype(np.float32)


Column = Number | Words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
  """Public description of a table, known before it is read.

  Attributes:
    columns: name -> how it is encoded; others are not read.
    label: the column of the class.
    classes: its values, from class 0 on.
    client: the column of the client; None where rows are dealt out.
    clients: its values; a run needs at least one row of each.
  """

  columns: Mapping[str, Column]
  label: str
  classes: tuple[str, ...]
  client: str | None = None
  clients: tuple[str, ...] = ()

  @property
  def features(self) -> int:
    """Number of features of an input."""
    return sum(
        len(c.values) if isinstance(c, Words) else 1
        for c in self.columns.values()
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Table:
  """Encoded rows.

  Attributes:
    inputs: float32[rows, features].
    labels: int32[rows].
    members: client -> its rows; empty where the schema has no clients.
  """

  inputs: np.ndarray
  labels: np.ndarray
  members: Mapping[str, np.ndarray]


def read_schema(path: str | os.PathLike) -> Schema:
  """Return the schema in a JSON file.

  Raises:
    PlanError: it is none; one sentence.
  """
  try:
    text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    data = json.loads(text, object_pairs_hook=_once)
    _known(data, _KEYS, "a schema")
    columns: dict[str, Column] = {}
    for name, column in data["columns"].items():
      where = f"column '{name}'"
      if isinstance(column, list):
        columns[name] = Words(_words(column, where))
      else:
        columns[name] = _number(column, where)
    if not columns:
      raise plan_lib.PlanError("columns is {}: name at least one column")
    return Schema(
        columns=columns,
        label=data["label"],
        classes=_words(data["classes"], "classes"),
        client=data.get("client"),
        clients=(
            ()
            if data.get("client") is None
            else _words(data["clients"], "clients")
        ),
    )
  except plan_lib.PlanError as e:
    raise plan_lib.PlanError(f"the schema {path} cannot be read: {e}") from e
  except FileNotFoundError as e:
    raise plan_lib.PlanError(
        f"the schema {path} does not exist: write one ({_REMEDY})"
    ) from e
  except (ArithmeticError, AttributeError, LookupError, OSError, TypeError,
          ValueError) as e:
    raise plan_lib.PlanError(
        f"the schema {path} cannot be read ({type(e).__name__}: {e}): it needs"
        f" columns, label, classes, client and clients ({_REMEDY})"
    ) from e


_KEYS = ("columns", "label", "classes", "client", "clients")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Return an object of JSON, in which no key may come twice."""
  for i, (key, _) in enumerate(pairs):
    if key in dict(pairs[:i]):
      raise plan_lib.PlanError(f"{key!r} is there twice: leave one out")
  return dict(pairs)


def _known(data: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
  for key in data.keys():
    if key not in keys:
      raise plan_lib.PlanError(
          f"{where} has the key '{key}': leave it out or write one of"
          f" {', '.join(keys)}"
      )


def _words(values: Any, where: str) -> tuple[str, ...]:
  """Return a list of words that differ."""
  if not isinstance(values, list) or not values:
    raise plan_lib.PlanError(
        f'{where} is {values!r}: write a list as in ["a", "b"]'
    )
  words = tuple(map(str, values))
  for word in words:
    if words.count(word) > 1:
      raise plan_lib.PlanError(f"{where} lists '{word}' twice: write it once")
  return words


def _number(data: Mapping[str, Any], where: str) -> Number:
  _known(data, [f.name for f in dataclasses.fields(Number)], where)
  column = Number(**data)
  for key in ("centre", "scale"):
    value = getattr(column, key)
    number = type(value) in (int, float) and math.isfinite(value)
    if not number or (key == "scale" and value <= 0):
      above = " above 0" if key == "scale" else ""
      raise plan_lib.PlanError(
          f"{where} has {key} {value!r}: write a finite number{above} without"
          " quotes"
      )
  if not isinstance(column.log, bool):
    raise plan_lib.PlanError(
        f"{where} has log {column.log!r}: write true or false without quotes"
    )
  return column


def read(path: str | os.PathLike, schema: Schema) -> Table:
  """Return a CSV file with a header, encoded.

  Raises:
    PlanError: a column is missing, or a row has another class or client than
      the schema says; one sentence.
  """
  try:
    with open(path, newline="", encoding="utf-8-sig") as file:
      rows = csv.reader(file, skipinitialspace=True)
      header = [name.strip() for name in next(rows, [])]
      lines, body = [], []
      for row in rows:
        if row:
          lines.append(rows.line_num)
          body.append(row)
  except FileNotFoundError as e:
    raise plan_lib.PlanError(
        f"the table {path} does not exist: name a CSV file with a header"
    ) from e
  except (OSError, UnicodeDecodeError, csv.Error) as e:
    raise plan_lib.PlanError(
        f"the table {path} cannot be read ({e}): name a CSV file in UTF-8"
    ) from e
  for name in header:
    if header.count(name) > 1:
      raise plan_lib.PlanError(
          f"{path} has the column '{name}' twice: rename or remove one"
      )
  if not body:
    raise plan_lib.PlanError(
        f"{path} has no rows below its header: add at least one"
    )
  for line, row in zip(lines, body):
    if len(row) != len(header):
      raise plan_lib.PlanError(
          f"line {line} of {path} has {len(row)} fields and the header"
          f" {len(header)}: repair it"
      )
  held: dict[str, list[str]] = {
      name: [row[i].strip() for row in body] for i, name in enumerate(header)
  }
  return encode(held, schema, str(path), lines)


def encode(
    held: Mapping[str, Sequence[str]],
    schema: Schema,
    name: str,
    lines: Sequence[int] | None = None,
) -> Table:
  """Encode columns of text; see `read`.

  Args:
    held: name -> the column.
    schema: of it.
    name: of the table, for messages.
    lines: of the rows in its file; None if they follow the header.
  """
  if lines is None:
    lines = range(2, 2 + max(map(len, held.values()), default=0))
  wanted: Iterable[str] = [*schema.columns, schema.label]
  if schema.client is not None:
    wanted = [*wanted, schema.client]
  for column in wanted:
    if column not in held:
      raise plan_lib.PlanError(
          f"{name} has no column '{column}', which the schema names: it has"
          f" {', '.join(held)}"
      )
  labels = _numbers(
      held[schema.label], schema.classes, name, schema.label, lines
  )
  members: dict[str, np.ndarray] = {}
  if schema.client is not None:
    owners = _numbers(
        held[schema.client], schema.clients, name, schema.client, lines
    )
    members = {
        client: np.flatnonzero(owners == i)
        for i, client in enumerate(schema.clients)
    }
  parts = [
      column.encode(held[key], key, name, lines)
      for key, column in schema.columns.items()
  ]
  return Table(
      inputs=np.concatenate(parts, axis=1),
      labels=labels,
      members=members,
  )


def _numbers(
    words: Sequence[str],
    known: Sequence[str],
    table: str,
    column: str,
    lines: Sequence[int],
) -> np.ndarray:
  """Return the position of each word among the known ones: int32[rows]."""
  places: dict[Any, int] = {word: i for i, word in enumerate(known)}
  found = np.asarray([places.get(word, -1) for word in words], np.int32)
  if (found < 0).any():
    row = int(np.argmax(found < 0))
    raise plan_lib.PlanError(
        f"line {lines[row]} of {table} has {column} '{words[row]}', and the"
        f" schema knows {', '.join(map(str, known)) or 'none'}: add it there,"
        " by a public rule, or leave the row out"
    )
  return found
