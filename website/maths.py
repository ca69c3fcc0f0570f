r"""Formulas as MathML, made at build time: no script and no font to fetch.

`$...$` in a line and fences of `math` are LaTeX, as code hosts read them.
"""

import html
from typing import Any
from xml.etree import ElementTree

from latex2mathml import converter
import markdown
from markdown import inlinepatterns

# As code hosts have it: no blank inside the signs, no digit behind them.
_INLINE = r"(?<![\\$\w])\$(?![\s$])((?:\\.|[^\\$])+?)(?<!\s)\$(?![\d$])"
_SHORT = 30  # Signs of LaTeX that fit on a line of a telephone.
_BEFORE_ESCAPES = 185  # Below code (190), above backslashes (180).


def inline(latex: str) -> ElementTree.Element:
  """A formula in a line, as an element."""
  found = ElementTree.Element("span", {"class": "formula"})
  if len(latex) > _SHORT:
    found.set("class", "formula long")
  found.append(converter.convert_to_element(latex, display="inline"))
  return found


def fence(
    source: str,
    language: str,
    css_class: str,
    options: Any,
    md: markdown.Markdown,
    **others: Any,
) -> str:
  """A formula of its own, for a fence of pymdownx.superfences."""
  numbered = source.strip().replace(r"\tag", r"\qquad \tag")
  mathml = converter.convert(numbered, display="block")
  return f'<div class="{html.escape(css_class)}">{mathml}</div>'


class _Inline(inlinepatterns.InlineProcessor):

  def handleMatch(self, m: Any, data: str) -> Any:
    return inline(m[1]), m.start(0), m.end(0)


class Maths(markdown.Extension):
  """Reads formulas in lines."""

  def extendMarkdown(self, md: markdown.Markdown) -> None:
    """Registers the pattern."""
    pattern = _Inline(_INLINE, md)
    md.inlinePatterns.register(pattern, "maths", _BEFORE_ESCAPES)


def makeExtension(**kwargs: Any) -> Maths:
  """What Markdown calls for `website.maths`."""
  return Maths(**kwargs)
