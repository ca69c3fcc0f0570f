"""What a package index would show and hold."""

import pathlib
import re
import runpy
import subprocess
import sys
import tarfile
from unittest import mock

import pytest
import setuptools

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope="module")
def description():
  with mock.patch.object(setuptools, "setup") as setup:
    runpy.run_path(str(ROOT / "setup.py"))
  return setup.call_args.kwargs["long_description"]


def test_the_readme_is_short():
  assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def test_no_link_of_the_description_leads_into_the_repository(description):
  text = re.sub(r"```.*?```", "", description, flags=re.DOTALL)
  links = re.findall(r"\]\(([^)]*)\)", text)
  assert [x for x in links if not x.startswith(("https://", "#"))] == []
  # What was a link is still said.
  assert "`docs/data.md`" in text and "CONTRIBUTING.md" in text


def test_the_description_renders(description):
  renderer = pytest.importorskip(
      "readme_renderer.markdown", reason="pip install '.[release]'"
  )
  found = renderer.render(description)
  assert found is not None
  assert found.count("<h2") == description.count("\n## ")
  assert "<table" in found and "<pre" in found
  assert "](" not in re.sub(r"<pre.*?</pre>", "", found, flags=re.DOTALL)


@pytest.mark.slow  # Builds both, without the network.
def test_wheel_and_source_archive_are_in_order(tmp_path):
  pytest.importorskip("setuptools", minversion="77")  # As pyproject.toml asks.
  for name in ("build", "check_wheel_contents", "twine"):
    pytest.importorskip(name, reason="pip install '.[release]'")
  tree = tmp_path / "tree"
  subprocess.run(
      ["git", "clone", "-q", "--depth=1", ROOT.as_uri(), str(tree)], check=True
  )

  def call(*arguments):
    subprocess.run(
        [sys.executable, "-m", *arguments], cwd=tree, check=True, timeout=200,
        capture_output=True,
    )

  call("build", "--no-isolation", f"--outdir={tmp_path}", ".")
  (wheel,) = tmp_path.glob("*.whl")
  (source,) = tmp_path.glob("*.tar.gz")
  call("twine", "check", "--strict", str(wheel), str(source))
  call("check_wheel_contents", str(wheel))
  with tarfile.open(source) as archive:
    tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
  assert {"LICENSE", "README.md", "episodic_dp", "setup.py"} <= tops
  assert not tops & {"tests", "docs", "experiments"}
