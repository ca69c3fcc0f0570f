"""A table of files and labels is listed, or refused by one sentence."""

import logging

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp.data.own_data import load
from episodic_dp.data.own_data import manifest
from tests.data import own_images

LEVELS = ("diagnosis", "patient", "image")
# Six patients with two images each; p0 and p1 have two diagnoses.
DIAGNOSES = ("ab", "bc", "aa", "bb", "cc", "aa")
ROWS = [
    (f"scans/{p}_{i}.png", f"p{p}", diagnosis)
    for p, both in enumerate(DIAGNOSES)
    for i, diagnosis in enumerate(both)
]


@pytest.fixture
def table(tmp_path):
  for name, *_ in ROWS:
    own_images.write(tmp_path / name)
  return write(tmp_path / "table.csv", ROWS)


def write(path, rows, header="file,patient,diagnosis"):
  path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
  return path


def test_rows_become_a_tree_in_the_order_that_the_levels_say(table):
  found = manifest.listing(table, LEVELS)
  paths = [c.path for c in found.classes]
  assert paths == sorted({(d, p) for _, p, d in ROWS})
  for unit in found.classes:
    names = {found.name_of(int(r)).split("/")[-1] for r in unit.records}
    assert names == {
        f.split("/")[-1] for f, p, d in ROWS if (d, p) == unit.path
    }
  other = manifest.listing(table, ("patient", "diagnosis", "image"))
  assert {c.path[::-1] for c in other.classes} == set(paths)
  assert not found.declared and found.levels == LEVELS


def test_two_diagnoses_are_divided_by_patients(table):
  two = [row for row in ROWS if row[2] in sorted({d for *_, d in ROWS})[:2]]
  write(table, two)
  with pytest.raises(ValueError, match="--config.data.options.by=patient"):
    load.survey(table, levels=LEVELS)
  found = load.survey(table, levels=LEVELS, by="patient", crossing="patient")
  assert all(tree.num_leaves for tree in found.hierarchies.values())


def test_a_patient_of_two_diagnoses_is_counted_and_kept_in_one_part(
    table, tmp_path
):
  asked = dict(levels=LEVELS, shares=(2, 1, 1), seed=1)
  with pytest.raises(ValueError, match="--config.data.options.by=patient"):
    load.survey(table, **asked, crossing="patient")
  found = load.survey(table, **asked, crossing="patient", by="patient")
  train = found.hierarchies["train"]
  patients = {
      part: set(h.names[1].tolist()) for part, h in found.hierarchies.items()
  }
  assert sum(map(len, patients.values())) == 6
  assert set().union(*patients.values()) == {f"p{i}" for i in range(6)}
  both = {"p0", "p1"} & patients["train"]
  assert train.most_copies == ((1, 2, 1) if both else None)
  assert train.units_from_records
  splits = data.load(
      "own_data", data_dir=table, cache_dir=tmp_path, **asked,
      crossing="patient", by="patient", size=8,
  )
  assert splits.train.hierarchy.same_tree(train)
  assert len(splits.train.images) == train.num_leaves


def test_the_table_may_say_what_is_for_what(table):
  rows = [
      (*row, {"p0": "validation", "p1": "test"}.get(row[1], "train"))
      for row in ROWS
  ]
  write(table, rows, "file,patient,diagnosis,split")
  found = load.survey(table, levels=LEVELS, crossing="patient")
  assert set(found.hierarchies["train"].names[1]) == {"p2", "p3", "p4", "p5"}
  # One image of p2 for validation: p2 would be in two parts.
  write(table, [(*rows[4][:3], "validation"), *rows[:4], *rows[5:]],
        "file,patient,diagnosis,split")
  with pytest.raises(ValueError, match="is in train and in validation|records"):
    load.survey(table, levels=LEVELS, crossing="patient")
  with pytest.raises(ValueError, match="leave out by='patient'"):
    load.survey(table, levels=LEVELS, by="patient")


def test_columns_that_no_level_names_are_said(table, caplog):
  with caplog.at_level(logging.WARNING):
    found = manifest.listing(table, ("diagnosis", "image"))
  assert "left out the columns ['patient']" in caplog.text
  assert [len(c.records) for c in found.classes] == [5, 4, 3]


@pytest.mark.parametrize(
    "rows, header, levels, message",
    [
        ([("a.png", "x")], "name,class", None, "column 'file'"),
        ([], "file,class", None, "has no row below its header"),
        ([("scans/0_0.png", "")], "file,class", None, "line 2 .* has no class"),
        ([("scans/0_0.png",)], "file,class", None, "number of fields"),
        ([("no.png", "x")], "file,class", None, "'no.png', which cannot be"),
        ([("table.txt", "x")], "file,class", None, "of no format that is read"),
        (
            [("scans/0_0.png", "x"), ("scans/../scans/0_0.png", "y")],
            "file,class", None, "in lines 2 and 3: a record must be in one",
        ),
        (
            [("scans/0_0.png", "x", "y")], "file,patient,diagnosis", None,
            "such as levels=patient/diagnosis/image",
        ),
        (
            [("scans/0_0.png", "x")], "file,class", ("ward", "image"),
            r"label columns \['class'\] and the levels",
        ),
        (
            [("scans/0_0.png", "x", "training")], "file,class,split", None,
            "the split 'training': write train, validation, test",
        ),
    ],
)
def test_mistakes_are_one_sentence(table, rows, header, levels, message):
  (table.parent / "table.txt").write_text("no example")
  write(table, rows, header)
  with pytest.raises(ValueError, match=message) as e:
    manifest.listing(table, levels)
  assert "\n" not in str(e.value)


def test_a_table_in_another_encoding_is_refused(table):
  table.write_bytes("file,class\ngrün.png,x\n".encode("latin-1"))
  with pytest.raises(ValueError, match="save it as CSV in UTF-8"):
    manifest.listing(table)


def test_a_spreadsheets_mark_and_quotes_are_read(table):
  table.write_text(
      '\ufefffile,class\n"scans/0_0.png","a, or b"\n', encoding="utf-8"
  )
  (found,) = manifest.listing(table).classes
  assert found.path == ("a, or b",) and np.array_equal(found.records, [0])
