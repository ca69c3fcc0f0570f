"""Names that others chose neither end a line nor command a terminal."""

import pytest

from episodic_dp.output import quoting
from episodic_dp.output import tables


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
  rows = [["a\nb", "1"], ["c|d", "2"]]
  assert tables.text(["name", "n"], rows).splitlines()[2:] == [
      "a\\nb  1", "c|d   2"
  ]
  assert tables.markdown(["name", "n"], rows).splitlines()[2:] == [
      "| a\\nb | 1 |", "| c\\|d | 2 |"
  ]
