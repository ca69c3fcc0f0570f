"""Names that others chose, such as those of files, made safe to print."""

import unicodedata

# Control characters, those that turn the direction of text or cannot be seen,
# halves of characters (a file name that is no UTF-8), and line separators.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"  # Some scripts, and emoji, are not written without.


def printable(text: str) -> str:
  """The text on one line, with what is not to be printed written as escapes.

  A name may hold a line break, a command to the terminal, or what turns the
  text behind it round.
  """
  if text.isprintable():
    return text
  return "".join(
      c.encode("unicode_escape").decode("ascii")
      if unicodedata.category(c) in _UNSAFE and c not in _JOINERS
      else c
      for c in text
  )
