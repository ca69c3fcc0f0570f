"""`episodic-dp pvi`: runs, resumes, and sentences for what is wrong."""

import json

import pytest

from episodic_dp.config import presets
from episodic_dp.config import pvi as config_lib
from episodic_dp.config.presets.pvi import adult
from episodic_dp.config.presets.pvi import own_table as own_table_preset
from tests.pvi import own_table

TINY = (
    "--config.visit.local_steps=2", "--config.checkpoint_every=1",
    "--config.evaluate_every=1", "--config.private_seed=1",
)


@pytest.mark.slow  # Three commands that compile.
def test_a_table_of_ones_own_is_learned_and_resumed(call, tmp_path):
  data, folder = tmp_path / "data", tmp_path / "run"
  data.mkdir()
  own_table.write(data)
  where = (f"--data_dir={data}", f"--workdir={folder}")
  run = ("pvi", "--config=own_table:epsilon=20,noise=2.0,rounds=2", *TINY)
  done = call(*run, *where)
  assert done.returncode == 0, done.stderr
  assert "done, after 2 rounds" in done.stdout
  assert "north, south, east: rows 8, visits 2: example: epsilon" in done.stdout
  assert "test: accuracy 0." in done.stdout
  summary = json.loads((folder / "guarantees.json").read_text())
  assert [row["client"] for row in summary["clients"]] == (
      own_table.SCHEMA["clients"]
  )
  assert [row["visits"] for row in summary["clients"]] == [2, 2, 2]
  # A statement verifies; the finished run is left as it is.
  done = call("verify", folder / summary["clients"][1]["statement"])
  assert done.returncode == 0 and "FALSE" not in done.stdout
  done = call(*run, *where)
  assert "done, after 2 rounds" in done.stdout
  # Another order of visits is another run.
  done = call(*run, *where, "--config.server.order=sequential")
  assert done.returncode == 1 and "config.server.order" in done.stderr
  assert len(done.stderr.strip().splitlines()[-1]) < 500


@pytest.mark.parametrize(
    "module, deltas",
    [(adult, [1e-3, 1e-3]), (own_table_preset, [1e-4, 1e-4])],
)
def test_delta_is_as_published_for_adult_and_else_well_below_one_unit(
    module, deltas
):
  config = config_lib.parse(module.get_config())
  found = [
      config_lib.default_delta(config.table, size) for size in (955, 1000)
  ]
  assert found == deltas


@pytest.mark.parametrize("module", [adult, own_table_preset])
def test_presets_are_complete_and_private_by_default(module):
  assert module.__name__.rpartition(".")[2] in presets.PVI_NAMES
  config = config_lib.parse(module.get_config())
  assert config.target_epsilon == 1.0 and config.visit.noise_multiplier > 0
  plain = config_lib.parse(module.get_config("private=0"))
  assert plain.visit.noise_multiplier == 0 and plain.target_epsilon is None
