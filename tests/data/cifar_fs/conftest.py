"""Small archives in place of the published ones."""

import hashlib

import pytest

from episodic_dp.data import files
from episodic_dp.data.cifar_fs import archives
from episodic_dp.data.cifar_fs import load as cifar_fs
from episodic_dp.data.cifar_fs import source
from tests.data.cifar_fs import copies


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
  """One folder per kind of archive."""
  made = {}
  for kind, write in copies.WRITERS.items():
    made[kind] = tmp_path_factory.mktemp(kind)
    write(made[kind])
  return made


@pytest.fixture(scope="module")
def table(tmp_path_factory):
  path = tmp_path_factory.mktemp("table") / "classes.tsv"
  path.write_text(
      "# class, superclass, part\n"
      + "".join(f"{k}\t{s}\t{p}\n" for k, (s, p) in copies.TABLE.items())
  )
  return path


@pytest.fixture(autouse=True)
def small(request, monkeypatch):
  """The published sizes and checksums give way to those of the small files."""
  if "roots" not in request.fixturenames:
    return
  roots = request.getfixturevalue("roots")
  sources = {
      kind: {
          part: files.Archive(
              archive.file,
              (copies.sha256(roots[kind] / archive.file),),
              archive.url,
          )
          for part, archive in archives_of.items()
      }
      for kind, archives_of in source.ORIGINALS.sources.items()
  }
  copies.replace_sources(monkeypatch, sources)
  monkeypatch.setattr(source, "_TABLE", request.getfixturevalue("table"))
  monkeypatch.setattr(source, "EXAMPLES", copies.EXAMPLES)
  monkeypatch.setattr(
      source, "ARRAY_SHA256", hashlib.sha256(copies.IMAGES).hexdigest()
  )
  monkeypatch.setattr(archives, "GRID", copies.GRID)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
  """A cache that the tests of this module share."""
  return tmp_path_factory.mktemp("cache")


@pytest.fixture
def prepared(roots, cache):
  return cifar_fs.load_arrays(data_dir=roots["sheets"], cache_dir=cache)
