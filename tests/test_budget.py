"""The size of the tree: no total is above `budget.toml`.

A node is one of the syntax tree. Docstrings, annotations and asserts are not
counted, so that line breaks, documentation, types and checks cost nothing, and
a conditional expression costs what an `if` costs.
"""

import ast
import collections
import functools
import pathlib
import re
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = ("episodic_dp", "experiments", "launch", "tests")
BUDGET = tomllib.loads((ROOT / "tests/budget.toml").read_text())
SLACK = 0.04  # A total that fell by more is to be lowered in the file too.


def nodes(tree):
  """Count the nodes of a module that the budget limits."""
  total, left = 0, [tree]
  while left:
    node = left.pop()
    documents = isinstance(node, ast.Expr) and isinstance(
        getattr(node.value, "value", None), str
    )
    if documents or isinstance(node, (ast.Assert, ast.expr_context)):
      continue
    total += 1
    for field, value in ast.iter_fields(node):
      if field not in ("annotation", "returns", "type_comment"):
        parts = value if isinstance(value, list) else [value]
        left += [part for part in parts if isinstance(part, ast.AST)]
  return total


def name_of(path):
  """Return the dotted name of a module."""
  dotted = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
  return dotted.removesuffix(".__init__")


def imported(tree, known):
  """Return the modules that a module imports from, among the known ones."""
  return known & {
      name
      for node in ast.walk(tree)
      if isinstance(node, ast.ImportFrom)
      for name in (
          node.module, *(f"{node.module}.{alias.name}" for alias in node.names)
      )
  }


def exported(tree):
  """Count the names in `__all__`."""
  return sum(
      len(node.value.elts)
      for node in tree.body
      if isinstance(node, ast.Assign)
      and getattr(node.targets[0], "id", "") == "__all__"
  )


@functools.cache
def totals():
  """Measure everything that budget.toml limits."""
  paths = [p for f in FOLDERS for p in sorted((ROOT / f).rglob("*.py"))]
  trees = {path: ast.parse(path.read_text("utf-8")) for path in paths}
  size = collections.Counter()
  for path, tree in trees.items():
    size[path.relative_to(ROOT).parts[0]] += nodes(tree)
  package = [p for p in paths if p.is_relative_to(ROOT / "episodic_dp")]
  known = {name_of(p) for p in package if p.name != "__init__.py"}
  importers = collections.Counter(
      module
      for path, tree in trees.items()
      if path.name != "__init__.py" and not path.is_relative_to(ROOT / "tests")
      for module in imported(tree, known) - {name_of(path)}
  )
  sources = [p for p in paths if not p.is_relative_to(ROOT / "tests")]
  text = "\n".join(path.read_text("utf-8") for path in sources)
  return {f"{folder}_nodes": size[folder] for folder in FOLDERS} | {
      "modules": len(package),
      "modules_with_one_importer": sum(n == 1 for n in importers.values()),
      "public_names": sum(
          exported(trees[p])
          for p in package
          if p.name == "__init__.py" and p.parent.parent.name == "episodic_dp"
      ),
      "flags": len(re.findall(r"\bDEFINE_\w+\(", text)),
      "pages": len([
          p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "api"
      ]),
  }


@pytest.mark.parametrize("name", BUDGET)
def test_no_total_rises(name):
  found, most = totals()[name], BUDGET[name]
  assert found <= most, f"{name}: {found}, and budget.toml allows {most}"
  assert found >= most * (1 - SLACK) - 1, f"set {name} = {found} in budget.toml"
