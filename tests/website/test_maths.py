"""Formulas become MathML, and what is no formula does not."""

import re

import pytest

pytest.importorskip("markdown", reason="pip install '.[docs]'")
pytest.importorskip("latex2mathml", reason="pip install '.[docs]'")

import markdown

from website import maths


def rendered(text):
  return markdown.markdown(text, extensions=["website.maths"])


def test_a_formula_in_a_line_is_mathml():
  found = rendered(r"with $\lVert g_u\rVert \le C$ it holds")
  assert found.count("<math") == 1 and "<msub>" in found
  assert "$" not in found and "\\" not in found
  assert 'class="formula"' in found
  assert 'class="formula long"' in rendered("$" + "a + " * 10 + "b$")


@pytest.mark.parametrize(
    "text", ["`$x$` is code", "costs 5$ or 6$", r"\$x\$", "$ x $", "$1$2"]
)
def test_what_is_no_formula_stays(text):
  assert "<math" not in rendered(text)


def test_a_fence_keeps_its_number_apart():
  found = maths.fence("a \\le b \\tag{1}", "math", "maths", {}, None)
  assert found.startswith('<div class="maths"><math')
  text = re.sub(r"<[^>]*>", " ", found)
  assert "(1)" in text.replace(" ", "") and "\\" not in text
