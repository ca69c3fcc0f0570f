"""The imports of the tree, read as text: no arrow upwards, no circle.

What the rules are and why: docs/decisions/floors.md. Every rule is a function
from sources to complaints, so that it is tested on planted faults as well.
"""

import ast
from collections.abc import Iterator
import functools
import pathlib
import textwrap

import pytest

ROOT = pathlib.Path(__file__).parent.parent

# Lowest first. A module imports from its own folder and from lower floors.
FLOORS = (
    ("plan", "output", "backends", "_version"),
    ("sampling", "accounting", "models"),
    ("learners", "data"),
    ("private",),
    ("auditing", "training"),
    ("pvi",),
    ("config",),
    ("analysis", "export"),
    ("cli",),
    ("__main__",),
)
WITHOUT_JAX = (
    "episodic_dp.plan",
    "episodic_dp.accounting",
    "episodic_dp.sampling.numpy_sampler",
    "episodic_dp.sampling.torch_sampler",
)
JAX = ("jax", "jaxlib", "flax", "haiku", "optax", "orbax")
MODULE_LINES, FUNCTION_LINES, EXPERIMENTS_LINES = 450, 80, 13000
NOTEBOOKS_LINES = 1750  # Most of them prose.
TRIPLE, TRIPLES = {"hierarchy", "plan", "mechanism"}, 3


class Module:
  """One source file.

  Attributes:
    name: dotted; a package's `__init__.py`, its face, has the package's name.
    face: whether it is one.
    text: its source.
    tree: the same, parsed.
  """

  def __init__(self, path: str, text: str):
    parts = path.removesuffix(".py").split("/")
    self.face = parts[-1] == "__init__"
    self.name = ".".join(parts[: -1 if self.face else None])
    self.text = text
    self.tree = ast.parse(text)

  def imports(self, known: set[str]) -> Iterator[tuple[str, bool]]:
    """Dotted names, and whether they are for type checkers alone.

    Those inside functions count. Of `from a import b` it is `a.b` where that is
    a module that is known, else `a`.
    """
    package = self.name.split(".")[: None if self.face else -1]
    for node, for_types in _statements(self.tree):
      if isinstance(node, ast.Import):
        yield from ((alias.name, for_types) for alias in node.names)
      elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
          above = package[: len(package) - node.level + 1]
          base = ".".join([*above, *([base] if base else [])])
        for alias in node.names:
          full = f"{base}.{alias.name}"
          yield full if full in known else base, for_types


def _statements(
    node: ast.AST, for_types: bool = False
) -> Iterator[tuple[ast.AST, bool]]:
  """All nodes below, and whether each is under `if TYPE_CHECKING`."""
  for child in ast.iter_child_nodes(node):
    yield child, for_types
    guarded = isinstance(child, ast.If) and (
        "TYPE_CHECKING" in ast.unparse(child.test)
    )
    yield from _statements(child, for_types or guarded)


class Tree:
  """Modules by name, and what each imports of the others."""

  def __init__(self, sources: dict[str, str]):
    modules = [Module(path, text) for path, text in sources.items()]
    self.modules = {m.name: m for m in modules}
    known = set(self.modules)
    self.imports = {m.name: sorted(set(m.imports(known))) for m in modules}
    self.graph = {
        name: {x for x, _ in found if x in known and x != name}
        for name, found in self.imports.items()
    }

  def functions(
      self,
  ) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function, with the module in front of its name."""
    for name, module in self.modules.items():
      for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
          yield f"{name}.{node.name}", node


def _folder(name: str) -> str:
  """The package of episodic_dp that a module belongs to, or the top folder."""
  parts = name.split(".")
  return parts[1] if parts[0] == "episodic_dp" else parts[0]


def _floor(name: str) -> int | None:
  """Its number from below; None for the face of episodic_dp itself."""
  if name == "episodic_dp":
    return None
  if not name.startswith("episodic_dp."):
    return len(FLOORS)
  return next(i for i, names in enumerate(FLOORS) if _folder(name) in names)


def homeless(tree: Tree) -> list[str]:
  """Folders of episodic_dp that stand on no floor."""
  known = {name for names in FLOORS for name in names}
  inside = {_folder(m) for m in tree.modules if m.startswith("episodic_dp.")}
  return sorted(inside - known)


def wrong_arrows(tree: Tree) -> list[str]:
  """Imports of a higher floor, or of another folder on the same one."""
  wrong = []
  for name, others in tree.graph.items():
    for other in sorted(others):
      here, there = _floor(name), _floor(other)
      if here is None or there is None or _folder(name) == _folder(other):
        continue
      if there > here:
        wrong.append(f"{name} imports {other}, which stands above it")
      elif there == here:
        wrong.append(f"{name} imports {other}, which stands beside it")
  return wrong


def circles(tree: Tree) -> list[str]:
  """Modules that reach themselves, and imports of a module's own face."""
  faces = {name for name, module in tree.modules.items() if module.face}
  graph = {n: g - faces for n, g in tree.graph.items() if n not in faces}
  found = []
  reached = {name: _reached(graph, name) for name in graph}
  for name in sorted(graph):
    together = {n for n in reached[name] if name in reached[n]}
    if name in together and name == min(together):
      found.append(" <-> ".join(sorted(together)))
  for name, others in tree.graph.items():
    # Not the face of episodic_dp, which imports nothing when it is imported.
    own = {f for f in faces if name.startswith(f"{f}.")} - {"episodic_dp"}
    found += [f"{name} imports {x}, its own face" for x in sorted(others & own)]
  return found


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
  """What imports lead to; `start` itself only by a circle."""
  reached: set[str] = set()
  waiting = [start]
  while waiting:
    new = graph.get(waiting.pop(), set()) - reached
    reached |= new
    waiting += new
  return reached


def ways_to_jax(tree: Tree) -> list[str]:
  """Imports of JAX, or of what is built on it, that `WITHOUT_JAX` leads to.

  Also through the faces of packages, which are imported before their modules.
  """
  graph = {}
  for name, found in tree.imports.items():
    modules = {x for x, for_types in found if not for_types}
    packages = {x.rpartition(".")[0] for x in modules}
    graph[name] = (modules | packages) & set(tree.modules)
  reached = set()
  for name in tree.modules:
    if f"{name}.".startswith(tuple(f"{p}." for p in WITHOUT_JAX)):
      reached |= {name, *_reached(graph, name)}
  return sorted(
      f"{name} imports {other}"
      for name in reached
      for other, for_types in tree.imports[name]
      if not for_types and other.split(".")[0] in JAX
  )


def long_modules(tree: Tree) -> list[str]:
  """Modules that do more than one job, most likely."""
  lines = {n: len(m.text.splitlines()) for n, m in tree.modules.items()}
  return [f"{n}: {many} lines" for n, many in lines.items()
          if many > MODULE_LINES]  # fmt: skip


def long_functions(tree: Tree) -> list[str]:
  """Functions that are long even without their docstrings."""
  found = []
  for name, node in tree.functions():
    docstring = len((ast.get_docstring(node) or "").splitlines())
    lines = (node.end_lineno or 0) - node.lineno + 1 - docstring
    if lines > FUNCTION_LINES:
      found.append(f"{name}: {lines} lines without its docstring")
  return found


def triples(tree: Tree) -> list[str]:
  """Functions that take apart what `plan.Release` holds together."""
  return [
      name
      for name, node in tree.functions()
      if name.startswith("episodic_dp.")
      and _arguments(node) >= TRIPLE
  ]


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
  arguments = node.args
  return {
      a.arg
      for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs
  }


@functools.cache
def this_tree() -> Tree:
  files = [
      path
      for folder in ("episodic_dp", "experiments", "launch", "website")
      for path in sorted((ROOT / folder).rglob("*.py"))
  ]
  return Tree({
      path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
      for path in files
  })


@pytest.mark.parametrize(
    "rule",
    [
        homeless,
        wrong_arrows,
        circles,
        ways_to_jax,
        long_modules,
        long_functions,
    ],
)
def test_holds(rule):
  found = rule(this_tree())
  assert not found, "\n".join(found)


def test_few_functions_take_a_release_apart():
  found = triples(this_tree())
  assert len(found) <= TRIPLES, "\n".join(found)


def test_experiments_stay_small():
  lines = {"notebooks": 0, "rest": 0}
  for name, module in this_tree().modules.items():
    if name.startswith("experiments"):
      part = "notebooks" if "notebooks" in name.split(".") else "rest"
      lines[part] += len(module.text.splitlines())
  assert lines["notebooks"] < NOTEBOOKS_LINES
  assert lines["rest"] < EXPERIMENTS_LINES


# A sound tree, to which each test adds a fault.
_SOUND = {
    "episodic_dp/__init__.py": "if TYPE_CHECKING:\n  import jax",
    "episodic_dp/plan/__init__.py": "from episodic_dp.plan import stages",
    "episodic_dp/plan/stages.py": "import numpy as np",
    "episodic_dp/plan/release.py": "from episodic_dp.plan import stages",
    "episodic_dp/accounting/ledger.py": "from episodic_dp import plan",
    "episodic_dp/sampling/sampler.py": """
        import jax
        from episodic_dp import plan
        from episodic_dp.plan import release""",
    "episodic_dp/training/loop.py": """
        from episodic_dp.accounting import ledger""",
    "episodic_dp/cli/train.py": """
        def main():
          from episodic_dp.training import loop  # Lazy import: ...""",
    "experiments/reproduce.py": "from episodic_dp.cli import train",
}


def planted(faults: dict[str, str]) -> Tree:
  """The sound tree, with these texts in the place of its own."""
  return Tree({
      path: textwrap.dedent(text) for path, text in (_SOUND | faults).items()
  })


def test_a_sound_tree_passes():
  tree = planted({})
  for rule in (homeless, wrong_arrows, circles, ways_to_jax, long_modules,
               long_functions, triples):  # fmt: skip
    assert rule(tree) == [], rule


@pytest.mark.parametrize(
    "text",
    [
        "from episodic_dp.training import loop",
        "import episodic_dp.training.loop",
        "from ..training import loop",
        "from ..training.loop import run",
        "def f():\n  from episodic_dp.training import loop",
        "if TYPE_CHECKING:\n  from episodic_dp.training import loop",
    ],
)
def test_an_arrow_upwards_is_named(text):
  tree = planted({"episodic_dp/accounting/ledger.py": text})
  assert wrong_arrows(tree) == [
      "episodic_dp.accounting.ledger imports episodic_dp.training.loop, which"
      " stands above it"
  ]


def test_a_neighbour_and_experiments_are_no_lower_floor():
  tree = planted({
      "episodic_dp/sampling/sampler.py": "import episodic_dp.accounting.ledger",
      "episodic_dp/cli/train.py": "from experiments import reproduce",
  })
  assert wrong_arrows(tree) == [
      "episodic_dp.sampling.sampler imports episodic_dp.accounting.ledger,"
      " which stands beside it",
      "episodic_dp.cli.train imports experiments.reproduce, which stands above"
      " it",
  ]


def test_launchers_stand_above_the_package_and_beside_experiments():
  tree = planted({
      "episodic_dp/cli/train.py": "from launch import local",
      "launch/local.py": "from episodic_dp.cli import train",
      "launch/slurm.py": "from experiments import reproduce",
  })
  assert wrong_arrows(tree) == [
      "episodic_dp.cli.train imports launch.local, which stands above it",
      "launch.slurm imports experiments.reproduce, which stands beside it",
  ]


def test_a_folder_needs_a_floor():
  assert homeless(planted({"episodic_dp/rooms/new.py": ""})) == ["rooms"]


def test_a_circle_is_named_once():
  tree = planted({
      "episodic_dp/plan/stages.py": """
          def f():
            from episodic_dp.plan import text""",
      "episodic_dp/plan/text.py": "from episodic_dp.plan import release",
  })
  assert circles(tree) == [
      "episodic_dp.plan.release <-> episodic_dp.plan.stages <->"
      " episodic_dp.plan.text"
  ]


def test_a_face_is_not_imported_from_inside():
  tree = planted({"episodic_dp/plan/stages.py": "from episodic_dp import plan"})
  assert circles(tree) == [
      "episodic_dp.plan.stages imports episodic_dp.plan, its own face"
  ]


@pytest.mark.parametrize(
    "sources, named",
    [
        (
            {"episodic_dp/plan/stages.py": "import jax.numpy as jnp"},
            "episodic_dp.plan.stages imports jax.numpy",
        ),
        (
            {"episodic_dp/sampling/numpy_sampler.py": "import jax"},
            "episodic_dp.sampling.numpy_sampler imports jax",
        ),
        (
            {
                "episodic_dp/accounting/ledger.py": """
                    def f():
                      from episodic_dp.output import files""",
                "episodic_dp/output/files.py": "",
                "episodic_dp/output/__init__.py": "from optax import adam",
            },
            "episodic_dp.output imports optax",
        ),
    ],
)
def test_a_way_to_jax_is_named(sources, named):
  assert ways_to_jax(planted(sources)) == [named]


def test_length_is_counted_without_the_docstring():
  docstring = '  """Say.\n' + "  it\n" * 200 + '  """\n'
  body = "  x = 1\n" * FUNCTION_LINES
  text = f"def documented():\n{docstring}  return 1\n\n\ndef long():\n{body}"
  found = long_functions(planted({"episodic_dp/plan/text.py": text}))
  assert found == ["episodic_dp.plan.text.long: 81 lines without its docstring"]
  text = "x = 1\n" * (MODULE_LINES + 1)
  found = long_modules(planted({"episodic_dp/plan/text.py": text}))
  assert found == ["episodic_dp.plan.text: 451 lines"]


def test_a_triple_is_counted():
  text = "def f(a, plan, *, mechanism, hierarchy):\n  pass"
  found = triples(planted({"episodic_dp/accounting/ledger.py": text}))
  assert found == ["episodic_dp.accounting.ledger.f"]
