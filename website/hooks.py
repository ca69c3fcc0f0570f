"""Takes pages where they stand in the repository into the site.

MkDocs reads one folder. Here README.md, the proof beside the accountant, the
pages of results and others stand elsewhere, where those who read the code look
for them. Every page of the site therefore has its path in the repository as
its name, so that its links are right in both places, and an address of its own.
"""

from collections.abc import Callable
import pathlib
import posixpath
import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

# What stands where -> its address, the folder of an address with a slash.
# The first that fits counts.
_ADDRESSES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "WORKSPACE.md": "workspace.md",
    "docs/": "",
    "episodic_dp/accounting/README.md": "proof.md",
    "experiments/benchmarks/README.md": "benchmarks.md",
    "experiments/notebooks/README.md": "notebooks.md",
    "experiments/results/README.md": "results/index.md",
    "experiments/results/": "results/",
}
_SUFFIXES = (".css", ".csv", ".js", ".json", ".md", ".png", ".svg")
_LINK = re.compile(r"(!?)\[([^]\[]*(?:\[[^]]*\][^]\[]*)*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
# What a line should not end inside: a hyphen in code with what follows it, and
# in the cell of a table a number with its sign, exponent, unit and spread.
_BLOCK = re.compile(r"(<pre.*?</pre>)", re.DOTALL)
_HYPHEN = r"-+(?:&\w+;|[^\s&<-])"
_NUMBER = r"\d+(?:[.,]\d+)*(?:e[-+]?\d+)?(?: ?(?:[%×]|s\b))?"
_SIGN = r"(?:(?:[≤≥±]|&[lg]t;) ?)?[-−+]?"
_FIGURE = rf"(?<![\w.]){_SIGN}{_NUMBER}(?: ± {_NUMBER})?"


def address(path: str) -> str | None:
  """Where a file of the repository stands in the site; None: nowhere."""
  if not path.endswith(_SUFFIXES):
    return None
  for start, there in _ADDRESSES.items():
    if path == start:
      return there
    if start.endswith("/") and path.startswith(start):
      return there + path.removeprefix(start)
  return None


def on_config(config: MkDocsConfig) -> MkDocsConfig:
  """Puts the pages of a folder into the navigation, README.md first."""
  paths = pages(_root(config))
  config.nav = _expanded(config.nav, paths)
  return config


def _expanded(entries: Any, paths: list[str]) -> Any:
  if isinstance(entries, dict):
    return {k: _expanded(v, paths) for k, v in entries.items()}
  if not isinstance(entries, list):
    return entries
  found: list[Any] = []
  for entry in entries:
    if isinstance(entry, str) and entry.endswith("/"):
      inside = [x for x in paths if re.fullmatch(f"{entry}[^/]+[.]md", x)]
      found += sorted(inside, key=lambda x: (not x.endswith("README.md"), x))
    else:
      found.append(_expanded(entry, paths))
  return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
  """The theme's own files, and the repository's by their paths there."""
  root = _root(config)
  kept = [file for file in files if file.src_dir != config.docs_dir]
  for path in pages(root):
    there = re.sub(r"\.md$", ".html", address(path) or "")
    kept.append(File(path, str(root), config.site_dir, False, dest_uri=there))
  return Files(kept)


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
  """Links to a folder lead to its README.md, if that is in the site.

  Those to what is in the repository and not in the site stay as text.
  """
  root = _root(config)
  folder = posixpath.dirname(page.file.src_uri)

  def link(match: re.Match[str]) -> str:
    image, text, target = match.groups()
    path = posixpath.normpath(posixpath.join(folder, target.split("#")[0]))
    elsewhere = re.match(r"https?:|#", target) or files.get_file_from_path(path)
    if image or elsewhere or not (root / path).exists():
      return match[0]  # What is nowhere is told by the strict build.
    if files.get_file_from_path(f"{path}/README.md"):
      return f"[{text}]({target.rstrip('/')}/README.md)"
    return text if path in text else f"{text} (`{path}`)"

  parts = _CODE.split(markdown)
  parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
  return "".join(parts)


def on_page_content(
    html: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
  """Mends cells and code.

  Code in tables writes a bar as code hosts want it, with a backslash. What
  belongs together stays on a line.
  """
  parts = _BLOCK.split(html)
  for i in range(0, len(parts), 2):
    cells = _inside("td", parts[i], lambda x: x.replace("\\|", "|"))
    cells = _inside("td", cells, lambda x: _whole(_FIGURE, x))
    parts[i] = _inside("code", cells, lambda x: _whole(_HYPHEN, x))
  return "".join(parts)


def _inside(tag: str, html: str, change: Callable[[str], str]) -> str:
  pattern = rf"<{tag}\b.*?</{tag}>"
  return re.sub(pattern, lambda x: change(x[0]), html, flags=re.DOTALL)


def _whole(pattern: str, html: str) -> str:
  """What fits the pattern outside of tags, of a class that does not break."""

  def span(match: re.Match[str]) -> str:
    if not re.search("[ -]", match[1] or ""):
      return match[0]
    return f'<span class="whole">{match[1]}</span>'

  return re.sub(f"<[^>]*>|({pattern})", span, html)


def _root(config: MkDocsConfig) -> pathlib.Path:
  return pathlib.Path(config.config_file_path).parent


def pages(root: pathlib.Path) -> list[str]:
  """All files of the repository that have an address, by their paths there."""
  found: set[pathlib.Path] = set()
  for start in _ADDRESSES:
    there = root / start
    found |= {*there.rglob("*.*")} if there.is_dir() else {there}
  paths = sorted(path.relative_to(root).as_posix() for path in found)
  return [path for path in paths if address(path) is not None]
