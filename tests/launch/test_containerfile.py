"""The container of the TPU and Kubernetes launchers: locked, and not root."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "launch/Containerfile").read_text(encoding="utf-8")


def test_it_is_pinned_locked_and_not_root():
  joined = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", TEXT, flags=re.M))
  lines = [line.split(maxsplit=1) for line in joined.splitlines() if line]
  names = [name for name, _ in lines]
  assert re.search(r"ARG PYTHON=3\.1[1-9]\.\d+-", TEXT)
  installs = re.findall(r"pip install (.*?)(?: &&|;|$)", joined, re.MULTILINE)
  assert installs == ['--no-deps --require-hashes -r "locks/$VARIANT.lock"']
  assert ["USER", "1000"] in lines
  assert names.index("USER") < names.index("ENTRYPOINT")
  for name, rest in lines:
    if name == "COPY":
      for source in rest.split()[:-1]:
        assert (ROOT / source).exists() and source not in (".", "*"), source
