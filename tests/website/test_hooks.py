"""Which pages the site has, and where the links of each lead."""

import pathlib
import re
import types

import pytest

pytest.importorskip("mkdocs", reason="pip install '.[docs]'")

from mkdocs import config as mkdocs_config

from website import hooks

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def config():
  return mkdocs_config.load_config(str(ROOT / "mkdocs.yml"))


def pages_of(nav):
  if isinstance(nav, str):
    return [nav]
  inner = nav.values() if isinstance(nav, dict) else nav
  return [page for one in inner for page in pages_of(one)]


def test_every_page_is_in_the_navigation_once(config):
  listed = pages_of(hooks.on_config(config).nav)
  there = [path for path in hooks.pages(ROOT) if path.endswith(".md")]
  assert sorted(listed) == sorted(there), "add the page to nav in mkdocs.yml"
  addresses = [hooks.address(path) for path in there]
  assert len({*addresses}) == len(addresses)


@pytest.mark.parametrize(
    "path, there",
    [
        ("README.md", "index.md"),
        ("docs/data.md", "data.md"),
        ("docs/decisions/keys.md", "decisions/keys.md"),
        ("experiments/results/table3.png", "results/table3.png"),
        ("episodic_dp/accounting/README.md", "proof.md"),
        ("episodic_dp/plan/stages.py", None),
        ("experiments/results/table3.txt", None),
        ("LICENSE", None),
    ],
)
def test_addresses(path, there):
  assert hooks.address(path) == there


def test_bars_in_cells_lose_their_backslash():
  cell = r"<p>a\|b</p><td><code>a\|b\|c</code></td><td>\n</td>"
  found = hooks.on_page_content(cell, None, None, None)
  assert found == r"<p>a\|b</p><td><code>a|b|c</code></td><td>\n</td>"


@pytest.mark.parametrize(
    "text, whole",
    [
        ("<td>4.58e-11</td>", ["4.58e-11"]),
        ("<td>1308 s</td>", ["1308 s"]),
        ("<td>ε of 27.8 % ± 1.6, 39</td>", ["27.8 % ± 1.6"]),
        ("<td>ε (&lt; 1.1×)</td>", ["&lt; 1.1×"]),
        ("<td>5-way, 0.25</td> 4.58e-11", []),
        ("<p><code>--a.b-c -</code> well-known</p>", ["--a", "-c"]),
        ('<code><i class="a-b">x-&gt;y</i></code>', ["-&gt;"]),
        ("<pre><code>--a</code></pre>", []),
    ],
)
def test_what_belongs_together_stays_on_a_line(text, whole):
  found = hooks.on_page_content(text, None, None, None)
  marked = r'<span class="whole">(.*?)</span>'
  assert re.findall(marked, found) == whole
  assert re.sub(marked, r"\1", found) == text


def test_links_to_what_is_not_in_the_site_stay_as_text(config):
  known = {"docs/data.md", "experiments/results/README.md"}
  files = types.SimpleNamespace(
      get_file_from_path=lambda path: path if path in known else None
  )
  page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="docs/x.md"))

  def said(text):
    return hooks.on_page_markdown(text, page, config, files)

  kept = "[data](data.md#own) [web](https://a.b) [here](#x) ![p](../setup.py)"
  assert said(kept) == kept
  assert said("[tests](../tests)") == "tests"
  folder = "../experiments/results"
  assert said(f"[all]({folder}/)") == f"[all]({folder}/README.md)"
  assert said("[the setup](../setup.py)") == "the setup (`setup.py`)"
  assert said("[gone](nowhere.md)") == "[gone](nowhere.md)"  # Strict tells.
  fenced = "```\n[tests](../tests)\n```"
  assert said(fenced) == fenced
