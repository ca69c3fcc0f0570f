"""Tables whose cells stand below each other."""

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


def test_a_table_without_rows_is_its_header():
  assert tables.text(("a", "b"), []).splitlines() == ["a  b", "-  -"]


def test_markdown_has_the_same_cells():
  assert tables.markdown(("run", "n"), [["a", 10]]).splitlines() == [
      "| run | n |", "| --- | --- |", "| a | 10 |",
  ]
