"""Tabular data as inputs and classes, by a public schema.

Any quantity computed from the rows (means, the largest value, the values of a
column) would be one more release. So a schema states it in advance: the values
of every text column, and centre and scale of every number column.
"""

from collections.abc import Callable, Mapping, Sequence
import csv
import dataclasses
import io
import json
import os
from typing import Annotated, Any

import numpy as np

from episodic_dp import _validate
from episodic_dp import foreign
from episodic_dp import plain
from episodic_dp.errors import DataError
from episodic_dp.errors import PlanError
from episodic_dp.errors import shown
from episodic_dp.output import files
from episodic_dp.plan import labels as labels_lib

_MOST_SCALES = 10  # Numbers are limited to 10 scales around the centre.


def _check_different(name: str, value: Any) -> Any:
  if not value or len(set(value)) < len(value):
    raise _validate.refusal(name, value, "one or more words that differ")
  labels_lib.check_names(lambda i: f"{name}[{i}]", [*value])
  return value


_Words = Annotated[tuple[str, ...], _check_different]


@dataclasses.dataclass(frozen=True)
class Number:
  """A column of numbers x, which become (f(x) - centre) / scale.

  Attributes:
    centre: a usual value.
    scale: a usual distance from it, above 0.
    log: whether f is ln(1 + x), for amounts; else f is the identity.
  """

  centre: float = 0.0
  scale: plain.Positive = 1.0
  log: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
  """Public description of a table, known before it is read.

  Attributes:
    columns: name -> encoding; other columns are not read. Text becomes an
      indicator for each of the listed values, and 0 for others.
    label: the column of the class.
    classes: its values, from class 0 on.
    client: the column of the client; None if rows are divided by a rule.
    clients: its values; a run needs at least one row of each.
  """

  columns: Annotated[Mapping[str, _Words | Number], _check_different]
  label: str
  classes: _Words
  client: str | None = None
  clients: _Words = ()

  @property
  def features(self) -> int:
    """Return the number of features of an input."""
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
    members: client -> its rows; empty if the schema has no clients.
  """

  inputs: np.ndarray = dataclasses.field(repr=False)
  labels: np.ndarray = dataclasses.field(repr=False)
  members: Mapping[str, np.ndarray]


def read_schema(path: str | os.PathLike) -> Schema:
  """Return the schema in a JSON file.

  Raises:
    OSError: the file cannot be read.
    DataError: it is not UTF-8.
    PlanError: it does not hold a schema.
  """
  text = text_of(path)
  try:
    data = json.loads(text)
  except (ValueError, RecursionError) as e:
    raise PlanError(f"the schema {path} is not JSON: {e}") from e
  return plain.from_plain(Schema, data, name="schema", partial=True)


def text_of(path: str | os.PathLike) -> str:
  """Return the text of a file, without the mark of a spreadsheet.

  Raises:
    OSError: the file cannot be read.
    DataError: it is not UTF-8.
  """
  try:
    return files.path_of(path).read_text(encoding="utf-8-sig")
  except UnicodeDecodeError as e:
    raise DataError(
        f"{path} is not text in UTF-8 (its byte {e.start + 1} is not): save it"
        " in this encoding, in a spreadsheet as 'CSV UTF-8'"
    ) from e


def _number(word: str) -> float:
  """Return a finite number; unlike `float`, without 1_000, nan and inf."""
  value = float(word)
  if "_" in word or not np.isfinite(value):
    raise ValueError(word)
  return value


def _amount(word: str) -> float:
  """Return a number of at least 0, which has a logarithm of 1 + x."""
  value = _number(word)
  if value < 0:
    raise ValueError(word)
  return value


def read(path: str | os.PathLike, schema: Schema) -> Table:
  """Return the encoded rows of a CSV file with a header.

  Raises:
    OSError: the file cannot be read.
    DataError: the file is not a table, a column is missing, or a row has a
      class or client that is not in the schema.
  """
  try:
    lines = csv.reader(io.StringIO(text_of(path)), skipinitialspace=True)
    rows = list(filter(None, lines)) or [[]]
  except csv.Error as e:
    raise DataError(f"{path} is not a CSV file: {e}") from e
  names, body = [name.strip() for name in rows[0]], rows[1:]
  foreign.check_commas(path, names)
  ragged = [i for i, row in enumerate(body, 2) if len(row) != len(names)]
  if ragged or not body:
    raise DataError(
        f"{path} has {len(names)} columns and {len(body)} rows, and"
        f" {len(ragged)} have another number of fields (rows {ragged[:4]}):"
        " give it one header line of names, and rows below"
    )
  for name in names:
    if names.count(name) > 1:
      raise DataError(
          f"{path} has {names.count(name)} columns '{name}': rename or remove"
          " all but one"
      )
  columns: dict[str, Sequence[str]] = dict(zip(names, zip(*body)))
  for name in set(names) - {schema.client}:  # "ann " may be another client.
    columns[name] = [word.strip() for word in columns[name]]
  return encode(columns, schema, str(path))


def encode(
    held: Mapping[str, Sequence[str]], schema: Schema, table: str
) -> Table:
  """Encode columns of text; see `read`.

  Args:
    held: name -> the column.
    schema: schema of the table.
    table: its name, for messages, which count rows as a spreadsheet does.
  """

  def converted(
      column: str, convert: Callable[[str], Any], expected: str
  ) -> np.ndarray:
    if column not in held:
      raise DataError(
          f"{table} has no column '{column}', which the schema names: it"
          f" has {shown([*held])}"
      )
    found = []
    for row, word in enumerate(held[column], 2):
      try:
        found.append(convert(word))
      except (KeyError, ValueError) as e:
        raise DataError(
            f"row {row} of {table} has {column} {shown(word)}: expected"
            f" {expected}, as in the schema; change the schema, by a public"
            " rule, or the row"
        ) from e
    return np.asarray(found)

  def positions(column: str, known: Sequence[str]) -> np.ndarray:
    numbers = {word: i for i, word in enumerate(known)}
    expected = f"one of {shown(known)}"
    return converted(column, numbers.__getitem__, expected).astype(np.int32)

  parts = []
  for name, column in schema.columns.items():
    if isinstance(column, Number):
      if column.log:
        amounts = converted(name, _amount, "a finite number of at least 0")
        values = np.log1p(amounts)
      else:
        values = converted(name, _number, "a finite number such as 1000 or 0.5")
      scaled = (values - column.centre) / column.scale
      limited = np.clip(scaled, -_MOST_SCALES, _MOST_SCALES)
      parts.append(limited[:, None])
    else:
      words = converted(name, str, "a word")
      parts.append(words[:, None] == np.asarray(column))
  members: dict[str, np.ndarray] = {}
  if schema.client is not None:
    owners = positions(schema.client, schema.clients)
    members = {
        client: np.flatnonzero(owners == i)
        for i, client in enumerate(schema.clients)
    }
  return Table(
      inputs=np.concatenate(parts, axis=1).astype(np.float32),
      labels=positions(schema.label, schema.classes),
      members=members,
  )
