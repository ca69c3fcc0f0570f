"""The API reference has every public name, and its text as it was written."""

import html
import pathlib
import re

import pytest

pytest.importorskip("griffe", reason="pip install '.[docs]'")
pytest.importorskip("mkdocs", reason="pip install '.[docs]'")

import griffe
import markdown
from mkdocs import config as mkdocs_config

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = sorted(path.stem for path in (ROOT / "docs" / "api").glob("*.md"))


@pytest.fixture(scope="module")
def config():
  return mkdocs_config.load_config(str(ROOT / "mkdocs.yml"))


@pytest.fixture(scope="module")
def package(config):
  handlers = config.plugins["mkdocstrings"].config.handlers
  options = handlers["python"]["options"]
  loader = griffe.GriffeLoader(
      docstring_options=options["docstring_options"],
      docstring_parser=options["docstring_style"],
      extensions=griffe.load_extensions(*options["extensions"]),
      search_paths=[ROOT],
  )
  found = loader.load("episodic_dp")
  loader.resolve_aliases()
  return found


def public(obj):
  """What a page shows of an object: itself, and what is inside."""
  yield obj
  if obj.is_class or obj.is_module:
    for name, member in obj.members.items():
      if not name.startswith("_") and member.is_public:
        if not member.is_module or member.is_alias:
          yield from public(member)


def texts(docstring):
  for section in docstring.parsed:
    if isinstance(section.value, str):
      yield section.value
    elif section.kind.value == "examples":
      yield from (x for kind, x in section.value if kind.value == "text")
    elif isinstance(section.value, list):
      yield from (item.description for item in section.value)


def letters(text):
  """Without blanks and the signs of code and emphasis."""
  return re.sub(r"[\s`*]", "", text)


@pytest.mark.parametrize("name", PACKAGES)
def test_docstrings_lose_nothing_to_markdown(config, package, name):
  markup = markdown.Markdown(
      extensions=config.markdown_extensions,
      extension_configs=config.mdx_configs,
  )
  for obj in public(package[name]):
    for text in texts(obj.docstring) if obj.docstring else ():
      shown = re.sub("<[^>]*>", "", markup.reset().convert(text))
      assert letters(html.unescape(shown)) == letters(text), obj.path


def test_a_function_stands_beside_the_module_that_hides_it(package):
  models = package["models"]
  shown = models.members["conv4()"]
  assert shown.is_function and shown.path == "episodic_dp.models.conv4"
  assert models["conv4"].is_module


def test_named_tuples_have_a_signature(package):
  signature = package["models.model.Model"].members["__init__"].parameters
  assert [x.name for x in signature][:2] == ["init", "apply"]
  assert str(signature["mixes_examples"].default) == "True"
  assert signature["init"].default is None


def classes(obj):
  for member in obj.members.values():
    if not member.is_alias and (member.is_module or member.is_class):
      if member.is_class:
        yield member
      yield from classes(member)


def test_classes_have_the_attributes_that_their_docstrings_name(package):
  named = [
      (found, item.name)
      for found in classes(package)
      for section in (found.docstring.parsed if found.docstring else ())
      if section.kind.value == "attributes"
      for item in section.value
  ]
  assert len(named) > 100
  missing = [
      f"{found.path}.{name}"
      for found, name in named
      if name not in found.all_members
      # Griffe does not see `self.a, self.b = 1, 2`.
      and not re.search(rf"self\.{name}\b[^=\n]*=", found.source)
  ]
  assert missing == []
