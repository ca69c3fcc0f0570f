"""The container file, as far as it can be read where nothing builds it."""

import pathlib
import re

import pytest

_FILE = pathlib.Path(__file__).resolve().parents[2] / "launch/Containerfile"
_TEXT = _FILE.read_text(encoding="utf-8")


def _instructions(text):
  """(name, rest) of each, with continued lines joined."""
  joined = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", text, flags=re.M))
  return [
      tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line
  ]


def _faults(text):
  found = _instructions(text)
  names = [name for name, _ in found]
  rest = {name: [r for n, r in found if n == name] for name in names}
  python = dict(a.partition("=")[::2] for a in rest["ARG"])["PYTHON"]
  faults = []
  if not re.match(r"3\.1[1-9]\.\d+-|.*@sha256:", python):
    faults.append(f"the base image {python} is not pinned")
  installs = re.findall(r"pip install (.*?)(?: &&|;|$)", "\n".join(rest["RUN"]),
                        re.MULTILINE)  # fmt: skip
  if installs != ['--no-deps --require-hashes -r "locks/$VARIANT.lock"']:
    faults.append("something is installed that is not locked")
  if rest["USER"][-1] in ("root", "0") or names.index("USER") > names.index(
      "ENTRYPOINT"
  ):
    faults.append("it runs as root")
  if re.search(r"(?i)secret|password|token|credential|private", text):
    faults.append("it holds a secret")
  if any(r.split()[0] in (".", "./", "*") for r in rest["COPY"]):
    faults.append("it copies whatever lies beside the code")
  return faults


def test_it_is_pinned_locked_and_without_secrets():
  assert _faults(_TEXT) == []


@pytest.mark.parametrize(
    "old, new, fault",
    [
        ("PYTHON=3.12.11-slim-bookworm", "PYTHON=3-slim", "is not pinned"),
        ("--require-hashes ", "", "is not locked"),
        ("RUN useradd", "RUN pip install jax && useradd", "is not locked"),
        ("USER 1000", "USER root", "runs as root"),
        ("ARG VARIANT=cpu", "ENV TOKEN=abc", "holds a secret"),
        ("COPY episodic_dp episodic_dp", "COPY . .", "whatever lies beside"),
    ],
)
def test_a_fault_would_be_noticed(old, new, fault):
  assert old in _TEXT
  (found,) = _faults(_TEXT.replace(old, new))
  assert fault in found


def test_what_it_copies_exists_and_what_it_installs_reads_buckets():
  root = _FILE.parents[1]
  for name, rest in _instructions(_TEXT):
    if name == "COPY":
      for source in rest.split()[:-1]:
        assert (root / source).exists(), source
  for name, also in (
      ("requirements.lock", "jaxlib"),
      ("requirements/cuda.lock", "jax-cuda13-plugin"),
      ("requirements/tpu.lock", "libtpu"),
  ):
    lock = (root / name).read_text(encoding="utf-8")
    for package in ("jax", "gcsfs", "s3fs", also):
      assert re.search(rf"^{package}==", lock, re.MULTILINE), (name, package)
