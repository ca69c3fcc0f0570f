r"""Formulas as MathML, made at build time: no script and no font to fetch.

`$...$` in a line and fences of `math` are LaTeX, as code hosts read them.
"""

from typing import Any

from latex2mathml import converter
import markdown
from markdown import inlinepatterns

# As on code hosts: no blank inside the signs, and no digit after them.
_INLINE = r"(?<![\\$\w])\$(?![\s$])((?:\\.|[^\\$])+?)(?<!\s)\$(?![\d$])"


def fence(source: str, *options: Any, **others: Any) -> str:
  """Return a displayed formula, for a fence of pymdownx.superfences."""
  numbered = source.strip().replace(r"\tag", r"\qquad \tag")
  return f'<div class="maths">{converter.convert(numbered, "block")}</div>'


class _Inline(inlinepatterns.InlineProcessor):

  def handleMatch(self, m: Any, data: str) -> Any:
    found = converter.convert_to_element(m[1], display="inline")
    return found, m.start(0), m.end(0)


class Maths(markdown.Extension):
  """Read formulas in lines."""

  def extendMarkdown(self, md: markdown.Markdown) -> None:
    """Register the pattern: below code (190), above backslashes (180)."""
    md.inlinePatterns.register(_Inline(_INLINE, md), "maths", 185)


def makeExtension(**kwargs: Any) -> Maths:
  """Return the extension that Markdown loads as `website.maths`."""
  return Maths(**kwargs)
