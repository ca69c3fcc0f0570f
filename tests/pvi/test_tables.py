"""Tables by a public schema, and Adult dealt out to clients."""

import json

import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp.errors import DataError
from episodic_dp.pvi import adult
from episodic_dp.pvi import tables
from tests import test_readme
from tests.pvi import own_table


@pytest.fixture
def schema(tmp_path):
  """That of the table, which is written with it."""
  own_table.write(tmp_path)
  return tables.read_schema(tmp_path / "schema.json")


def test_rows_are_encoded_by_the_schema_alone(tmp_path, schema):
  table = tables.read(tmp_path / "train.csv", schema)
  assert schema.features == table.inputs.shape[1] == 4
  first = own_table.ROWS[0]
  np.testing.assert_allclose(
      table.inputs[0],
      [
          (float(first["age"]) - 50) / 20,
          (np.log1p(float(first["cost"])) - 5) / 3,
          float(first["sex"] == "female"), float(first["sex"] == "male"),
      ],
      rtol=1e-6,
  )
  assert list(table.members) == ["north", "south", "east"]
  held = np.concatenate(list(table.members.values()))
  assert sorted(held) == list(range(len(own_table.ROWS)))
  # Another row changes no other row's inputs.
  changed = tables.encode(
      {k: [*(r[k] for r in own_table.ROWS), "1"] for k in ("age", "cost")}
      | {"sex": ["x"] * 25, "hospital": ["east"] * 25, "outcome": ["ill"] * 25},
      schema, "more",
  )
  np.testing.assert_array_equal(changed.inputs[:24, :2], table.inputs[:, :2])
  assert (changed.inputs[24, 2:] == 0).all()  # A value that is not listed.


def test_the_page_predicts_from_the_posterior_of_a_work_directory(tmp_path):
  own_table.write(tmp_path)
  found = {"mean": {"offset": 0.0, "weights": [0.0] * 4}}
  found["variance"] = {"offset": 1.0, "weights": [1.0] * 4}
  (tmp_path / "posterior.json").write_text(json.dumps(found))
  scope = test_readme.executed("docs/pvi.md", "tables.read_schema", {
      "WORKDIR": str(tmp_path),
      "DIR/schema": f"{tmp_path}/schema",
      "DIR/test": f"{tmp_path}/train",
  })
  logs = scope["model"].predict(scope["posterior"], scope["rows"])
  np.testing.assert_allclose(logs, np.log(0.5), rtol=1e-5)


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(columns={"weight": {}}), "has no column 'weight'"),
        (dict(classes=["well"]), "has outcome 'ill'"),
        (dict(clients=["north", "south"]), "has hospital 'east'"),
        (dict(columns={"sex": {}}), r"row 2 of \S*train.csv has sex '\w+'"),
        (dict(columns={"age": {"middle": 3}}), "columns.age.middle=3"),
        (dict(columns={"age": {"scale": "20"}}), "columns.age.scale='20'"),
        (dict(columns={"age": {"scale": -1}}), "columns.age.scale=-1"),
        (dict(columns={"age": {"scale": float("inf")}}), "age.scale=inf"),
        (dict(columns={"age": {"log": "no"}}), "columns.age.log='no'"),
        (dict(columns={"sex": []}), "columns.sex="),
        (dict(columns={}), "schema.columns={}"),
        (dict(classes=["ill", "ill"]), "schema.classes="),
        (dict(clients=["north", "north"]), "schema.clients="),
        (dict(clients=["north", "north "]), r"clients\[0\] .* only in blanks"),
        (dict(classes=["\u00e9", "e\u0301"]), "differ only in blanks"),
        (dict(colums={}), "schema.colums={}"),
        (dict(label=None), "schema.label"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, change, words):
  own_table.write(tmp_path)
  path = tmp_path / "schema.json"
  path.write_text(json.dumps(own_table.SCHEMA | change))
  with pytest.raises(ValueError, match=words) as refused:
    tables.read(tmp_path / "train.csv", tables.read_schema(path))
  of_data = "train.csv" in str(refused.value) or "only in blanks" in words
  assert isinstance(refused.value, DataError) == of_data


def test_an_amount_below_0_has_no_logarithm(schema):
  held = {name: [row[name] for row in own_table.ROWS] for name in
          own_table.ROWS[0]}
  held["cost"][3] = "-1"
  with pytest.raises(DataError, match="row 5 .* cost '-1'.* at least 0"):
    tables.encode(held, schema, "train.csv")


def test_a_client_of_another_spelling_is_not_taken_for_one(tmp_path, schema):
  path = tmp_path / "train.csv"
  path.write_text(path.read_text().replace("north", "north ", 1))
  with pytest.raises(DataError, match="has hospital 'north ': expected"):
    tables.read(path, schema)


def test_files_of_a_spreadsheet_are_read_and_lines_counted(tmp_path):
  own_table.write(tmp_path)
  for name in ("schema.json", "train.csv"):
    path = tmp_path / name
    path.write_text("\ufeff" + path.read_text(), encoding="utf-8")
  schema = tables.read_schema(tmp_path / "schema.json")
  table = tables.read(tmp_path / "train.csv", schema)
  assert len(table.labels) == len(own_table.ROWS)
  header = "age,cost,sex,hospital,outcome\n"
  for text, words in (
      (header, "and 0 rows"),
      (header.replace(",", ";") + "1;2;x;north;ill\n", "semicolons .*commas"),
      (header.replace("cost", "age") + "1,2,x,north,ill\n",
       "has 2 columns 'age'"),
      *(
          (header + f"1,2,x,north,ill\n1,{word},x,north,ill\n",
           f"row 3 of .*train.csv has cost '{word}': expected a finite number")
          for word in ("nan", "NaN", "-inf", "1e999", "1_000", "1x")
      ),
      (header + "1,2,x\0y,north,i\n", "outcome 'i'"),
      (header + f"1,2,{'x' * 140_000},north,ill\n", "is not a CSV file: field"),
      (header + '1,2,"fe\nmale",north,ill\nx,2,male,north,ill\n',
       "row 3 of .* has age 'x'"),
      (header + "1,2\n", r"\(rows \[2\]\)"),
  ):
    (tmp_path / "train.csv").write_text(text)
    with pytest.raises(DataError, match=words):
      tables.read(tmp_path / "train.csv", schema)
  for name in ("train.csv", "schema.json"):
    (tmp_path / name).write_bytes("hôpital".encode("latin-1"))
    with pytest.raises(DataError, match=f"{name} .*byte 2.*'CSV UTF-8'"):
      tables.read(tmp_path / "train.csv", schema)
      tables.read_schema(tmp_path / "schema.json")
    (tmp_path / name).write_text(header + "1,2,x,north,ill\n")
  (tmp_path / "schema.json").write_text("{")
  with pytest.raises(plan.PlanError, match="is not JSON"):
    tables.read_schema(tmp_path / "schema.json")


@pytest.mark.parametrize("split", adult.SPLITS)
def test_the_splits_are_those_that_were_published(split):
  labels = (np.random.default_rng(0).random(20_000) < 0.24).astype(np.int32)
  size_factor, balance_factor = adult.SPLITS[split]
  members = adult.divide(
      labels, clients=10, size_factor=size_factor,
      balance_factor=balance_factor, seed=0,
  )
  held = np.concatenate(list(members.values()))
  assert len(set(held)) == len(held) > len(labels) - 10
  share = np.mean(labels == 0)
  small = [rows for name, rows in members.items() if "small" in name]
  large = [rows for name, rows in members.items() if "large" in name]
  assert len({len(rows) for rows in small}) == 1 == len(
      {len(rows) for rows in large}
  )
  np.testing.assert_allclose(
      [len(small[0]), len(large[0])],
      [(1 - size_factor) * 2000, (1 + size_factor) * 2000], atol=1,
  )
  wanted = share + (1 - share) * balance_factor
  for rows in small:
    np.testing.assert_allclose(np.mean(labels[rows] == 0), wanted, atol=0.003)
  if not balance_factor:
    rest = [np.mean(labels[rows] == 0) for rows in large]
    np.testing.assert_allclose(rest, share, atol=0.04)


def test_impossible_splits_are_refused():
  labels = np.asarray([0, 1] * 50)
  for clients, balance, words in ((4, -3, "nearer to 0"), (3, 0, "clients=3")):
    with pytest.raises(plan.PlanError, match=words):
      adult.divide(
          labels, clients=clients, size_factor=0, balance_factor=balance, seed=0
      )


def test_adult_is_read_as_it_was_published(real_data):
  train, validation, test = adult.load(real_data)
  sizes = [len(part.labels) for part in (train, validation, test)]
  assert sizes == [29_305, 3256, 16_281]
  np.testing.assert_allclose(test.labels.mean(), 3846 / 16_281)
  assert np.isfinite(train.inputs).all()
  assert np.abs(train.inputs).max() <= 10
  with pytest.raises(FileNotFoundError, match="adult.data of UCI Adult"):
    adult.load("no_such_folder")
