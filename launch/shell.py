"""Words as a shell takes them, so that shellcheck and people read them well."""

from collections.abc import Iterable
import shlex


def quote(word: str) -> str:
  """One word; commas are quoted too, which look like a mistake in an array."""
  quoted = shlex.quote(word)
  return f"'{word}'" if quoted == word and "," in word else quoted


def join(words: Iterable[str]) -> str:
  """Several, with spaces between them."""
  return " ".join(map(quote, words))
