"""The smallest example: it learns, privately, and says what it guarantees."""

import json

from matplotlib import image as image_lib
import pytest

from episodic_dp import plan
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import sinusoid as config_lib
from experiments import reproduce


@pytest.fixture(scope="module")
def done(tmp_path_factory):
  """The folder of a finished comparison: 15 seconds, most of them compiling."""
  folder = tmp_path_factory.mktemp("sinusoid")
  reproduce.main("sinusoid", "smoke", str(folder))
  return folder


def test_a_participant_without_classes_is_the_task():
  release = RunConfig.parse(config_lib.get_config()).release
  hierarchy, described = release.hierarchy, release.plan
  mechanism = release.mechanism
  assert hierarchy.levels == ("participant", "point")
  assert plan.tasks_per_step(hierarchy, described) == pytest.approx(200)
  assert mechanism.clip_unit == "participant"
  assert described.episode.way == 1


@pytest.mark.slow
def test_training_lowers_the_error_and_adapting_too(done):
  results = json.loads((done / "sinusoid.json").read_text())["runs"]
  for name in ("with_privacy", "without_privacy"):
    errors = results[name]["squared_error"]
    assert errors["single"]["tasks"] == 600
    assert errors["single"]["high"] < errors["untrained"]["low"]
    assert errors["single"]["mean"] < results[name]["not_adapted"]["mean"]
  epsilon = results["with_privacy"]["epsilon"]
  assert set(epsilon) == {"participant", "point"}
  assert 0 < epsilon["participant"]["epsilon"] < 20
  assert results["without_privacy"]["epsilon"]["point"]["epsilon"] == "inf"


@pytest.mark.slow
def test_the_best_checkpoints_are_those_of_the_least_error(done):
  folder = done / "without_privacy"
  found = json.loads((folder / "evaluation.json").read_text())
  lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
  errors = {
      line["step"]: line["validation_squared_error"]
      for line in lines
      if line["step"] and "validation_squared_error" in line
  }
  assert len(errors) == 10
  best = sorted(errors, key=errors.get)
  assert found["ensemble"]["steps"] == best[:5]


@pytest.mark.slow
def test_the_picture_shows_curves_of_both_runs(done):
  pixels = image_lib.imread(done / "sinusoid.png")[..., :3]
  blue = (pixels[..., 2] > pixels[..., 0] + 0.4).sum()
  orange = (pixels[..., 0] > pixels[..., 2] + 0.6).sum()
  assert blue > 1000 and orange > 1000


def test_heads_that_tell_classes_apart_are_refused():
  config = config_lib.get_config()
  config.learner.name = "protonet"
  with pytest.raises(ValueError, match="way 1 is regression"):
    RunConfig.parse(config).check_complete()
