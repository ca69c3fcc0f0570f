"""The main job at the smallest size, through its command lines."""

import json
import pathlib
import subprocess
import sys

from matplotlib import image as image_lib
import pytest

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
  """The folder and the output of a finished main job."""
  folder = tmp_path_factory.mktemp("main")
  command = [sys.executable, "-m", "experiments.reproduce", "--target=glyphs"]
  run = subprocess.run(
      [*command, "--scale=smoke", f"--workdir={folder}"],
      cwd=ROOT,
      capture_output=True,
      text=True,
      timeout=400,
  )
  assert run.returncode == 0, run.stderr
  return folder, run.stdout


def test_prints_accuracies_with_intervals_and_three_guarantees(done):
  folder, output = done
  stored = json.loads((folder / "glyphs.json").read_text())
  assert "--data_dir" not in stored["command"]  # It would be refused.
  results = stored["runs"]
  for run in ("with_privacy", "without_privacy"):
    single = results[run]["accuracy"]["single"]
    assert single["tasks"] == 600
    assert 0 <= single["low"] <= single["mean"] <= single["high"] <= 1
    half = 50 * (single["high"] - single["low"])
    assert f"{100 * single['mean']:.1f} % ± {half:.1f}" in output
    assert (folder / run / "checkpoints" / "4").is_dir()
  for level in ("participant", "glyph", "drawing"):
    epsilon = results["with_privacy"]["epsilon"][level]["epsilon"]
    stated = json.loads((folder / "with_privacy/guarantee.json").read_text())
    assert 0 < epsilon == stated["guarantees"][level]["epsilon"]
    assert f"add or remove one {level}" in " ".join(output.split())
    assert results["without_privacy"]["epsilon"][level]["epsilon"] == "inf"


def test_the_picture_shows_something(done):
  pixels = image_lib.imread(done[0] / "glyphs.png")[..., :3]
  coloured = (pixels.max(-1) - pixels.min(-1) > 0.3).sum()
  assert coloured > 200, "no line was drawn"
