"""Tabular data as inputs and classes, by a public schema.

What is computed from the rows (their means, their largest value, which values
of a column occur) would be one more release. So a schema says it before: the
values of every column of words, centre and scale of every column of numbers.
"""

from collections.abc import Mapping, Sequence
import csv
import dataclasses
import json
import math
import os
import pathlib

import numpy as np

from episodic_dp import _validate
from episodic_dp import plain
from episodic_dp import plan as plan_lib


@dataclasses.dataclass(frozen=True)
class Number:
  """A column of numbers x, which become (f(x) - centre) / scale.

  Attributes:
    centre: a usual value.
    scale: a usual distance from it, above 0.
    log: whether f is ln(1 + x), for amounts; else it changes nothing.
  """

  centre: float = 0.0
  scale: plain.Positive = 1.0
  log: bool = False

  def __post_init__(self) -> None:
    if not math.isfinite(self.centre):
      raise _validate.refusal("centre", self.centre, "a finite number")


# Words become an indicator for each of the values, and 0 for others.
Column = tuple[str, ...] | Number


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

  def __post_init__(self) -> None:
    lists = {"classes": self.classes}
    if self.client is not None:
      lists["clients"] = self.clients
    for name, column in self.columns.items():
      if not isinstance(column, Number):
        lists[f"columns.{name}"] = column
    for name, words in lists.items():
      if not words or len(set(words)) < len(words):
        raise _validate.refusal(f"schema.{name}", words, "words that differ")
    if not self.columns:
      raise _validate.refusal("schema.columns", {}, "at least one column")

  @property
  def features(self) -> int:
    """Number of features of an input."""
    return sum(
        1 if isinstance(column, Number) else len(column)
        for column in self.columns.values()
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
    OSError: the file cannot be read.
    PlanError: it holds no schema.
  """
  text = pathlib.Path(path).read_text(encoding="utf-8-sig")
  try:
    data = json.loads(text)
  except ValueError as e:
    raise plan_lib.PlanError(f"the schema {path} is not JSON: {e}") from e
  return plain.from_plain(Schema, data, name="schema", partial=True)


def read(path: str | os.PathLike, schema: Schema) -> Table:
  """Return a CSV file with a header, encoded.

  Raises:
    OSError: the file cannot be read.
    PlanError: a column is missing, or a row has another class or client than
      the schema says.
  """
  with open(path, newline="", encoding="utf-8-sig") as file:
    rows = csv.reader(file, skipinitialspace=True)
    header = [name.strip() for name in next(rows, [])]
    numbered = [(rows.line_num, row) for row in rows if row]
  lines, body = [n for n, _ in numbered], [row for _, row in numbered]
  if len(set(header)) < len(header):
    raise plan_lib.PlanError(f"{path} has a column twice: {', '.join(header)}")
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
  owner = () if schema.client is None else (schema.client,)
  for column in (*schema.columns, schema.label, *owner):
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
  parts = []
  for key, column in schema.columns.items():
    if isinstance(column, Number):
      parts.append(_scaled(held[key], column, name, key, lines))
    else:
      words = np.asarray(held[key])[:, None]
      parts.append((words == np.asarray(column)).astype(np.float32))
  return Table(
      inputs=np.concatenate(parts, axis=1),
      labels=labels,
      members=members,
  )


def _scaled(
    words: Sequence[str],
    column: Number,
    table: str,
    name: str,
    lines: Sequence[int],
) -> np.ndarray:
  """Return float32[rows, 1], limited to 10 scales around the centre."""
  values = np.empty(len(words))
  for row, word in enumerate(words):
    try:
      values[row] = float(word)
    except ValueError as e:
      raise plan_lib.PlanError(
          f"line {lines[row]} of {table} has {name} '{word}', which is no"
          " number: repair it, or list the column's values in the schema"
      ) from e
  if column.log:
    values = np.log1p(np.maximum(values, 0))
  scaled = np.clip((values - column.centre) / column.scale, -10, 10)
  return np.nan_to_num(scaled)[:, None].astype(np.float32)


def _numbers(
    words: Sequence[str],
    known: Sequence[str],
    table: str,
    column: str,
    lines: Sequence[int],
) -> np.ndarray:
  """Return the position of each word among the known ones: int32[rows]."""
  places = {word: i for i, word in enumerate(known)}
  found = np.asarray([places.get(word, -1) for word in words], np.int32)
  if (found < 0).any():
    row = int(np.argmax(found < 0))
    raise plan_lib.PlanError(
        f"line {lines[row]} of {table} has {column} '{words[row]}', and the"
        f" schema knows {', '.join(map(str, known)) or 'none'}: add it there,"
        " by a public rule, or leave the row out"
    )
  return found
