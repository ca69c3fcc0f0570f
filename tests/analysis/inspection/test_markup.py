"""Names are words on the page, whatever they hold."""

from episodic_dp.analysis.inspection import markup


def test_names_are_neither_markup_nor_commands():
  name = "<b>\x1b[2J\n'\"&\u202e"
  shown = "&lt;b&gt;\\x1b[2J\\n&#x27;&quot;&amp;\\u202e"
  assert markup.escaped(name) == shown
  table = markup.table("levels", (name, "n"), [(name, name)])
  assert table.count(shown) == 3 and "<b>" not in table
