"""Tables whose cells stand below each other."""

import pytest

from episodic_dp.output import quoting
from episodic_dp.output import tables


def test_numbers_stand_flush_right_and_words_flush_left():
  rows = [["a", 10, "add"], ["longer", "-", "remove"], ["b", "2.5 % ± 1", "x"]]
  assert tables.text(("run", "score", "direction"), rows).splitlines() == [
      "run         score  direction",
      "------  ---------  ---------",
      "a              10  add",
      "longer          -  remove",
      "b       2.5 % ± 1  x",
  ]
  assert tables.text(("a", "b"), []).splitlines() == ["a  b", "-  -"]


@pytest.mark.parametrize(
    "text,expected",
    [
        ("plain, 'quoted', Größe, 漢字, 400\u202f000", None),
        ("👩\u200d🔬", None),
        ("a\nerror: b", "a\\nerror: b"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u202eb\u2028c", "a\\u202eb\\u2028c"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_is_not_to_be_printed_is_escaped(text, expected):
  assert quoting.printable(text) == (text if expected is None else expected)


def test_cells_stay_cells():
  rows = [["a\nb", 1], ["c|d", 2]]
  assert tables.text(["name", "n"], rows).splitlines()[2:] == [
      "a\\nb  1", "c|d   2"
  ]
  assert tables.markdown(["name", "n"], rows).splitlines() == [
      "| name | n |", "| --- | --- |", "| a\\nb | 1 |", "| c\\|d | 2 |"
  ]
  assert tables.markdown(("run", "n"), [["a", 10]]).splitlines() == [
      "| run | n |", "| --- | --- |", "| a | 10 |",
  ]
