"""The lock files hold what setup.py asks for, pinned and with hashes."""

import pathlib
import re
import runpy
from unittest import mock

from packaging import requirements
from packaging import utils
import pytest
import setuptools

ROOT = pathlib.Path(__file__).parent.parent
LOCKS = {
    "requirements.lock": ["test"],
    "requirements/release.lock": ["docs", "release"],
    "requirements/cuda.lock": ["cuda"],
    "requirements/tpu.lock": ["tpu"],
}
PYTHONS = ("3.11.9", "3.12.3", "3.13.1")


def asked(extras):
  """List what setup.py asks for with extras."""
  with mock.patch.object(setuptools, "setup") as setup:
    runpy.run_path(str(ROOT / "setup.py"))
  given = setup.call_args.kwargs
  texts = map(given["extras_require"].get, extras)
  return [
      requirements.Requirement(text)
      for text in sum(texts, given["install_requires"])
  ]


def pins(text, python):
  """Name -> version, on Linux with this Python."""
  where = {
      "python_version": python.rpartition(".")[0],
      "python_full_version": python, "sys_platform": "linux",
      "platform_system": "Linux", "platform_machine": "x86_64",
      "implementation_name": "cpython", "os_name": "posix",
      "platform_python_implementation": "CPython",
  }
  found = {}
  for line in re.findall(r"^[\w.-]+==[^\\\n]*", text, re.MULTILINE):
    pin = requirements.Requirement(line.strip())
    if pin.marker is None or pin.marker.evaluate(where):
      name = utils.canonicalize_name(pin.name)
      assert name not in found, f"{name} is pinned twice for {python}"
      found[name] = str(pin.specifier).removeprefix("==")
  return found


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS)
def test_all_that_is_asked_for_is_pinned(name, python):
  found = pins((ROOT / name).read_text(), python)
  for one in asked(LOCKS[name]):
    version = found[utils.canonicalize_name(one.name)]
    assert one.specifier.contains(version, prereleases=True), "run make lock"


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_a_hash_and_none_is_torch(name):
  text = (ROOT / name).read_text()
  assert "make lock" in text.split("\n\n")[0]
  blocks = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
  assert len(blocks) > 50
  assert [b.split()[0] for b in blocks if "--hash=sha256:" not in b] == []
  assert not [b for b in blocks if b.startswith(("torch==", "tensorflow=="))]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", list(LOCKS)[1:])
def test_all_have_what_was_tested(name, python):
  tested, there = (
      pins((ROOT / file).read_text(), python)
      for file in ("requirements.lock", name)
  )
  both = {*tested} & {*there}
  assert {"jax", "jaxlib", "flax", "numpy"} <= both
  assert {n: there[n] for n in both} == {n: tested[n] for n in both}
