"""Add pages to the site by their paths in the repository.

MkDocs reads one folder. Here README.md, the proof, the pages of results and
others are next to the code that they describe. Every page of the site is named
by its path in the repository, so that its links are right in both places.
"""

import pathlib
import posixpath
import re
from typing import Any

from mkdocs.structure.files import File
from mkdocs.structure.files import Files

# Path in the repository -> address, folders with a slash.
_ADDRESSES = {
    "README.md": "index.html",
    "CHANGELOG.md": "changelog.html",
    "CONTRIBUTING.md": "contributing.html",
    "WORKSPACE.md": "workspace.html",
    "docs/": "",
    "episodic_dp/accounting/README.md": "proof.html",
    "experiments/benchmarks/README.md": "benchmarks.html",
    "experiments/notebooks/README.md": "notebooks.html",
    "experiments/results/": "results/",
}
_SUFFIXES = {".css", ".csv", ".js", ".json", ".md", ".png", ".svg"}
_LINK = re.compile(
    r"(?<!!)\[([^]\[]*(?:\[[^]]*\][^]\[]*)*)\]\(([^)\s#]+)[^)\s]*\)"
)


# The name of a flag in running text, which does not break after its hyphens.
_FLAG = re.compile(r'(?<=[\s>(="])--[a-z]\w*')


def pages(root: pathlib.Path) -> dict[str, str]:
  """Return path in the repository -> address, of all files of the site."""
  found = {}
  for start, there in _ADDRESSES.items():
    place = root / start
    for path in place.rglob("*.*") if place.is_dir() else [place]:
      name = path.relative_to(root).as_posix()
      if path.suffix in _SUFFIXES:
        address = there + name.removeprefix(start)
        found[name] = re.sub(r"(README)?\.md$", _html, address)
  return found


def _html(match: re.Match[str]) -> str:
  return "index.html" if match[1] else ".html"


def on_files(files: Files, config: Any) -> Files:
  """Return the theme's own files, and the repository's."""
  root = pathlib.Path(config.config_file_path).parent
  kept = [file for file in files if file.src_dir != config.docs_dir]
  for path, address in pages(root).items():
    kept.append(File(path, str(root), config.site_dir, False, dest_uri=address))
  return Files(kept)


def on_page_markdown(
    markdown: str, page: Any, config: Any, files: Files
) -> str:
  """Show links to files of the repository that are not in the site as text."""
  root = pathlib.Path(config.config_file_path).parent
  folder = posixpath.dirname(page.file.src_uri)

  def link(match: re.Match[str]) -> str:
    path = posixpath.normpath(posixpath.join(folder, match[2]))
    if files.get_file_from_path(f"{path}/README.md"):
      return f"[{match[1]}]({match[2].rstrip('/')}/README.md)"
    inside = files.get_file_from_path(path) or not (root / path).exists()
    return match[0] if inside else match[1]

  return _LINK.sub(link, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
  """Keep the names of flags on one line; see docs/style.css."""
  return _FLAG.sub(r'<span class="whole">\g<0></span>', html)
