"""Make names that others chose, such as those of files, safe to print."""

import unicodedata

# Control characters, those that turn the direction of text or cannot be seen,
# halves of characters (a file name that is no UTF-8), and line separators.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"  # Some scripts, and emoji, are not written without.


def printable(text: str) -> str:
  """Return the text on one line, with unsafe characters as escapes.

  A name may hold a line break, a command to the terminal, or a mark that turns
  the direction of the text behind it.
  """
  if text.isprintable():
    return text
  return "".join(
      c.encode("unicode_escape").decode("ascii")
      if unicodedata.category(c) in _UNSAFE and c not in _JOINERS
      else c
      for c in text
  )
