"""Classes above the units whose privacy is kept, from a folder and a table."""

import csv
import json
import os
import pathlib
import subprocess
import sys

import pytest

from episodic_dp import plan
from episodic_dp.accounting import report
from episodic_dp.analysis import costs
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import own_data as config_lib

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # To compile.
SIZES = ("--diagnoses=6", "--patients=10", "--size=16", "--crossing=2")
LEVELS = "levels=diagnosis/patient/image,classes=diagnosis,way=3,tasks=2"
CROSSING = dict(crossing="patient", by="patient")


def run(*arguments):
  return subprocess.run(
      [sys.executable, "-m", *arguments],
      cwd=ROOT, env=os.environ | QUICK, capture_output=True, text=True,
      timeout=400,
  )


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
  """Six diagnoses of ten patients with two images; 30 patients in all."""
  out = tmp_path_factory.mktemp("classes") / "patients"
  done = run(
      "experiments.export_glyphs", f"--out={out}", "--layout=diagnosis", *SIZES
  )
  assert "120 images of 6 diagnoses" in done.stdout, done.stderr
  return out


@pytest.mark.parametrize("some,fits", [(12, 6), (4, 3)])
def test_patients_of_more_diagnoses_than_there_are_or_fit_are_refused(
    tmp_path, some, fits
):
  out = tmp_path / "patients"
  done = run(
      "experiments.export_glyphs", f"--out={out}", "--layout=diagnosis", *SIZES,
      f"--crossing={some}",
  )  # fmt: skip
  assert done.returncode == 1 and not out.exists()
  assert f"give --crossing={fits} or" in done.stderr
  assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "flag, layout", [("--patients=3", "diagnosis"), ("--glyphs=3", "writer")]
)
def test_a_flag_of_the_other_layout_is_refused(tmp_path, flag, layout):
  out = tmp_path / "images"
  other = {"diagnosis": "writer", "writer": "diagnosis"}[layout]
  done = run(
      "experiments.export_glyphs", f"--out={out}", f"--layout={other}", flag
  )
  assert done.returncode == 1 and not out.exists()
  assert f"{flag} is of --layout={layout}: give that" in done.stderr
  assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def table(patients, tmp_path):
  """The same as a table."""
  path = patients.parent / "table.csv"
  with path.open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["file", "patient", "diagnosis"])
    for image in sorted(patients.rglob("*.png")):
      diagnosis, patient = image.parts[-3:-1]
      rows.writerow([image.relative_to(path.parent), patient, diagnosis])
  return path


def parsed(data_dir, text=LEVELS, **options):
  config = config_lib.get_config(text)
  config.data.options.update(options)
  return RunConfig.parse(config, data_dir=data_dir)


def test_what_is_classified_and_whose_privacy_it_is_are_said(patients):
  config = parsed(patients, **CROSSING)
  assert config.level == "patient"
  assert config.release.plan.episode.classes == "diagnosis"
  assert config.release.hierarchy.most_copies == (1, 2, 1)
  text = costs.table(costs.account(config))
  assert "What is classified: the diagnosis. A task has 3 classes" in text
  assert "no patient being in both the support and the query" in text
  assert "that of one diagnosis or one patient or one image" in text
  assert "one patient in all units of level 'diagnosis'" in text


def test_a_table_is_the_same_tree_as_the_folders(patients, table):
  folder, listed = (
      parsed(path, **CROSSING).release.hierarchy for path in (patients, table)
  )
  assert listed.units_from_records and not folder.units_from_records
  assert folder.same_tree(listed)


def test_patients_with_a_task_of_their_own_need_no_crossing(table):
  config = parsed(table, "levels=patient/diagnosis/image,way=2")
  assert config.release.plan.episode.form == "unit"
  assert not config.release.hierarchy.copies and config.level == "patient"


def test_names_that_may_be_one_unit_are_refused_until_it_is_said(patients):
  with pytest.raises(
      plan.PlanError, match="--config.data.options.crossing=patient"
  ):
    parsed(patients)
  with pytest.raises(ValueError, match="--config.data.options.by=patient"):
    parsed(patients, crossing="patient")
  with pytest.raises(ValueError, match="must be one of the levels"):
    parsed(patients, crossing="ward")
  told = "use classes=diagnosis or classes=patient"
  with pytest.raises(ValueError, match=told):
    config_lib.get_config("levels=diagnosis/patient/image,classes=image")


@pytest.mark.slow  # It trains and evaluates, in two processes.
def test_diagnoses_are_learned_with_a_guarantee_for_patients(table, tmp_path):
  done = run(
      "episodic_dp", "train",
      f"--config=own_data:{LEVELS},width=2,steps=3,noise_multiplier=4",
      "--config.data.options.crossing=patient",
      "--config.data.options.by=patient",
      "--config.data.options.size=16",
      "--config.learner.order=first",
      "--config.evaluation.query=1",
      "--config.data.options.shares=(1,1,1)",
      "--config.evaluation.validation_tasks=4",
      "--config.evaluation.test_tasks=4",
      f"--data_dir={table}",
      f"--workdir={tmp_path / 'run'}",
  )
  assert done.returncode == 0, done.stderr
  for level in ("diagnosis", "patient", "image"):
    assert f"  {level} " in done.stdout
  statement = json.loads((tmp_path / "run" / "guarantee.json").read_text())
  patient = statement["guarantees"]["patient"]
  rounded = report.rounded_up(patient["epsilon"])
  assert f"epsilon≤{rounded}" in done.stderr
  assert "at most 2" in patient["caveat"]
  done = run(
      "episodic_dp", "evaluate", f"--data_dir={table}",
      f"--workdir={tmp_path / 'run'}",
  )
  assert done.returncode == 0, done.stderr
  done = run("episodic_dp", "verify", str(tmp_path / "run" / "guarantee.json"))
  assert done.returncode == 0, done.stdout + done.stderr
