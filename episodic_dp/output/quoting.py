"""Make names from other sources, such as file names, safe to print."""

import unicodedata

# Control characters, characters that are invisible or change the direction of
# text, surrogates (a file name that is not UTF-8), and line separators.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"  # Needed by some scripts and by emoji.


def printable(text: str) -> str:
  """Return the text on one line, with unsafe characters as escapes.

  A name may hold a line break, a terminal command, or a mark that changes the
  direction of the following text.
  """
  if text.isprintable():
    return text
  safe = ""
  for c in text:
    if unicodedata.category(c) in _UNSAFE and c not in _JOINERS:
      c = c.encode("unicode_escape").decode("ascii")
    safe += c
  return safe
