"""What the documents name is there: files, commands, presets, targets."""

import pathlib
import re

import pytest

from episodic_dp.cli import commands
from episodic_dp.config import presets
from experiments import targets
from experiments.benchmarks.registry import BENCHMARKS

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("", "docs", "docs/decisions", "episodic_dp/accounting",
                   "experiments/benchmarks", "experiments/notebooks",
                   "experiments/results")
    for path in (ROOT / folder).glob("*.md")
)  # fmt: skip
# Tells of what was, under the names that it had.
CURRENT = [name for name in DOCUMENTS if name != "CHANGELOG.md"]
_FOLDERS = {
    path.name
    for folder in (ROOT, ROOT / "episodic_dp")
    for path in folder.iterdir()
    # `make train` and others make these two.
    if path.is_dir() and path.name not in ("runs", "build")
}


def text_of(name):
  """A document, commands of several lines on one."""
  return (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")


def unknown(pattern, name, known):
  """What the pattern's group finds in a document and is not known."""
  return sorted({*re.findall(pattern, text_of(name))} - {*known})


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
  text = re.sub(r"```.*?```", "", text_of(name), flags=re.DOTALL)
  links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)[^)]*\)", text)
  folder = (ROOT / name).parent
  assert [x for x in links if not (folder / x).exists()] == []


@pytest.mark.parametrize("name", CURRENT)
def test_paths_exist(name):
  found = {*re.findall(r"`(\w+/[\w./]+)`", text_of(name))}
  # In capitals: a name that the reader chooses.
  found = {x for x in found if not re.search(r"\b(test_)?[A-Z]+\b", x)}
  folders = (ROOT, ROOT / "episodic_dp", (ROOT / name).parent)
  assert sorted(
      path for path in found
      if (ROOT / path).parts[len(ROOT.parts)] in _FOLDERS
      and not any((folder / path).exists() for folder in folders)
  ) == []  # fmt: skip


@pytest.mark.parametrize("name", CURRENT)
def test_commands_exist(name):
  assert not unknown(
      r"episodic-dp +([a-z][a-z-]*)\b(?! the\b)", name, commands.COMMANDS
  )
  modules = unknown(r"-m +((?:episodic_dp|experiments)[\w.]*)", name, ())
  files = [ROOT / x.rstrip(".").replace(".", "/") for x in modules]
  missing = [
      f for f in files
      if not f.with_suffix(".py").exists()
      and not (f / "__main__.py").exists()
      and f.name != "NAME"
  ]  # fmt: skip
  assert missing == []


@pytest.mark.parametrize("name", CURRENT)
def test_presets_benchmarks_and_targets_exist(name):
  known = (*presets.NAMES, *presets.PVI_NAMES)
  assert not unknown(r"--config=([a-z]\w*)", name, known)
  lists = re.findall(r"benchmarks --run=([a-z][\w,]*)", text_of(name))
  assert {x for run in lists for x in run.split(",")} <= {*BENCHMARKS, "all"}
  makefile = (ROOT / "Makefile").read_text()
  made = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
  assert not unknown(r"(?:^|`)make ([a-z][a-z-]+)", name, made)


def test_the_page_of_data_names_every_preset():
  page = text_of("docs/data.md")
  for name in (*presets.NAMES, *presets.PVI_NAMES):
    assert f"`{name}`" in page, name


def test_the_workspace_lists_every_target_of_reproduce():
  (row,) = re.findall(r".*reproduce --target=NAME.*", text_of("WORKSPACE.md"))
  assert {*re.findall(r"`(\w+)`", row)} == {*targets.NAMES}


@pytest.mark.parametrize("name", [
    name for name in DOCUMENTS
    if name.startswith("docs/") and "-m experiments.benchmarks" in text_of(name)
])  # fmt: skip
def test_measured_ratios_and_milliseconds_are_those_of_the_table(name):
  found = r"(\d[\d.]*(?:×| ms))"
  table = text_of("experiments/benchmarks/README.md")
  assert not unknown(found, name, re.findall(found, table))


def test_every_decision_is_in_the_index():
  folder = ROOT / "docs/decisions"
  pages = {path.name for path in folder.glob("*.md")} - {"README.md"}
  index = text_of("docs/decisions/README.md")
  listed = re.findall(r"^\| \[.*?\]\((\w+\.md)\)", index, re.MULTILINE)
  assert sorted(listed) == sorted(pages)
