"""UCI Adult, divided among clients as in the published work on private PVI.

The original files are `adult.data` (training) and `adult.test`; a public schema
encodes their columns. The last tenth of the training rows is public validation
data, on which settings are chosen. The other rows are divided among clients.
Half of the M clients are small: each has (1 - size_factor) N / M rows with a
share p + (1 - p) balance_factor of class 0, where p is the share of all rows.
The others have (1 + size_factor) N / M rows. Splits depend on the labels, and
are assumed to be public, as in the benchmark.

B. Becker and R. Kohavi, "Adult", UCI Machine Learning Repository (1996).
"""

import dataclasses
import os

import numpy as np

from episodic_dp.errors import PlanError
from episodic_dp.output import files
from episodic_dp.pvi import tables

FILES = ("adult.data", "adult.test")
_NAMES = (
    "age", "workclass", "fnlwgt", "education", "education-num",
    "marital-status", "occupation", "relationship", "race", "sex",
    "capital-gain", "capital-loss", "hours-per-week", "native-country",
    "target",
)
# All values of each column except a common one, which is a row of zeros:
# shorter inputs have shorter gradients. "education" repeats "education-num".
_WORDS = {
    "workclass": (
        "Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov"
        " Without-pay Never-worked"
    ),
    "marital-status": (
        "Divorced Never-married Separated Widowed"
        " Married-spouse-absent Married-AF-spouse"
    ),
    "occupation": (
        "Tech-support Craft-repair Sales Exec-managerial"
        " Prof-specialty Handlers-cleaners Machine-op-inspct Adm-clerical"
        " Farming-fishing Transport-moving Priv-house-serv Protective-serv"
        " Armed-Forces"
    ),
    "relationship": (
        "Wife Own-child Husband Other-relative Unmarried"
    ),
    "race": "Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female",
    "native-country": (
        "Cambodia England Puerto-Rico Canada Germany"
        " Outlying-US(Guam-USVI-etc) India Japan Greece South China Cuba Iran"
        " Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal"
        " Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti Columbia"
        " Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador"
        " Trinadad&Tobago Peru Hong Holand-Netherlands"
    ),
}
# Round numbers that anyone would guess, not computed from the rows.
_NUMBERS = {
    "age": tables.Number(40, 15),
    "education-num": tables.Number(10, 2.5),
    "capital-gain": tables.Number(0, 5000),
    "capital-loss": tables.Number(0, 1000),
    "hours-per-week": tables.Number(40, 12),
}
SCHEMA = tables.Schema(
    columns=_NUMBERS
    | {name: tuple(words.split()) for name, words in _WORDS.items()},
    label="target",
    classes=("<=50K", ">50K"),
)
SPLITS = {
    "homogeneous": (0.0, 0.0),
    "inhomogeneous_1": (0.9, 0.95),
    "inhomogeneous_2": (0.7, -3.0),
}
ONE_CLIENT = "one_client"  # Holds all rows: global inference.
VALIDATION_SHARE = 0.1


def load(
    data_dir: str | os.PathLike | None,
) -> tuple[tables.Table, tables.Table, tables.Table]:
  """Read the two files.

  Args:
    data_dir: the folder that holds them, or its parent if that is `adult`.

  Returns:
    Private training rows, to be divided among clients; public validation rows,
    the last tenth of `adult.data`; and public test rows, `adult.test`.

  Raises:
    FileNotFoundError: they are missing; one sentence with the remedy.
    DataError: they hold something else.
  """
  rows, test = (_read(data_dir, file) for file in FILES)
  first = round(len(rows.labels) * (1 - VALIDATION_SHARE))
  train, validation = (
      dataclasses.replace(rows, inputs=rows.inputs[p], labels=rows.labels[p])
      for p in (slice(first), slice(first, None))
  )
  return train, validation, test


def divide(
    labels: np.ndarray,
    *,
    clients: int,
    size_factor: float,
    balance_factor: float,
    seed: int,
) -> dict[str, np.ndarray]:
  """Divide rows among clients: client -> its rows, without a remainder.

  Args:
    labels: int[rows], 0 or 1.
    clients: M, an even number.
    size_factor: 0 for equal sizes; near 1, small clients have few rows.
    balance_factor: of class 0 in small clients; 0 for the share of all rows.
    seed: public seed.

  Raises:
    PlanError: there is no such split.
  """
  rng = np.random.default_rng(seed)
  total, half = len(labels), clients // 2
  if clients < 2 or clients % 2:
    raise PlanError(
        f"clients={clients}: expected an even number, at least 2: half"
        " of them are small"
    )
  zeros, ones = (
      rng.permutation(np.flatnonzero(labels == c)) for c in (0, 1)
  )
  share = len(zeros) / total
  small = int((1 - size_factor) * total / clients)
  of_zeros = round(small * (share + (1 - share) * balance_factor))
  of_ones = small - of_zeros
  enough = of_zeros * half <= len(zeros) and of_ones * half <= len(ones)
  if small < 1 or of_zeros < 0 or of_ones < 0 or not enough:
    raise PlanError(
        f"size_factor={size_factor} and balance_factor={balance_factor} need"
        f" {of_zeros} and {of_ones} rows of the two classes in each of {half}"
        f" small clients, but there are {len(zeros)} and {len(ones)} rows: take"
        " both nearer to 0"
    )
  dealt_zeros, dealt_ones = half * of_zeros, half * of_ones
  small_rows = np.concatenate([
      zeros[:dealt_zeros].reshape(half, -1), ones[:dealt_ones].reshape(half, -1)
  ], axis=1)
  rest = rng.permutation(
      np.concatenate([zeros[dealt_zeros:], ones[dealt_ones:]])
  )
  large = len(rest) // half
  if not size_factor and not balance_factor:
    large = small  # All equal.
  large_rows = rest[: half * large].reshape(half, -1)
  members = {}
  for kind, of_kind in (("small", small_rows), ("large", large_rows)):
    for i, rows in enumerate(of_kind):
      members[f"{kind}_{i}"] = np.sort(rows)
  return members


def _read(data_dir: str | os.PathLike | None, file: str) -> tables.Table:
  """Return the rows of one of the two files, with a header or without."""
  folder = files.path_of(data_dir or "no folder")
  found = [p for p in (folder / file, folder / "adult" / file) if p.is_file()]
  if not found:
    raise FileNotFoundError(
        f"{file} of UCI Adult is not in data_dir={data_dir}: get adult.data and"
        " adult.test from https://archive.ics.uci.edu/dataset/2/adult and name"
        " their folder as data_dir (in a command --data_dir)"
    )
  held: dict[str, list[str]] = {name: [] for name in _NAMES}
  for line in tables.text_of(found[0]).splitlines():
    fields = line.split(",")
    # The original test file starts with a remark; some copies have a header.
    if len(fields) == len(_NAMES) and fields[0].strip() != "age":
      for name, word in zip(_NAMES, fields):
        held[name].append(word.strip())
  held["target"] = [word.rstrip(".") for word in held["target"]]
  return tables.encode(held, SCHEMA, str(found[0]))
