"""The site builds strictly, with formulas and links, and loads nothing."""

import pathlib
import re

import pytest

from tests import processes

pytest.importorskip("mkdocs", reason="pip install '.[docs]'")

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow  # Builds all pages.
def test_the_site_builds_strictly(tmp_path):
  processes.printed(
      "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}",
      NO_MKDOCS_2_WARNING="1",
  )
  assert "<math" in (tmp_path / "proof.html").read_text()
  assert (tmp_path / "results/table3.png").exists()
  for page in tmp_path.rglob("*.html"):
    loaded = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"?(\S+)",
                        page.read_text(encoding="utf-8"))
    assert not [x for x in loaded if re.match(r"https?:(?!.*canonical)", x)]
