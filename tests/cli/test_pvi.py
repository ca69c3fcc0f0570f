"""`episodic-dp pvi`: runs, resumes, and sentences for what is wrong."""

import dataclasses

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.config import presets
from episodic_dp.config import pvi as config_lib
from episodic_dp.config.presets.pvi import adult
from episodic_dp.config.presets.pvi import own_table as own_table_preset
from episodic_dp.pvi import federation
from tests.pvi import own_table
from tests.stored import json_of

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
  assert "done, after round 2" in done.stdout
  assert "north, south, east: rows 8, visits 2: example: epsilon" in done.stdout
  assert "test: accuracy 0." in done.stdout
  summary = json_of(folder / "guarantees.json")
  assert [row["client"] for row in summary["clients"]] == (
      own_table.SCHEMA["clients"]
  )
  assert [row["visits"] for row in summary["clients"]] == [2, 2, 2]
  # A statement verifies; the finished run is left as it is.
  done = call("verify", folder / summary["clients"][1]["statement"])
  assert done.returncode == 0 and "FALSE" not in done.stdout
  done = call(*run, *where)
  assert "done, after round 2" in done.stdout
  # Another order of visits is another run.
  done = call(*run, *where, "--config.server.order=sequential")
  assert done.returncode == 1 and "config.server.order" in done.stderr
  assert len(done.stderr.strip().splitlines()[-1]) < 500


@pytest.mark.slow  # Three commands that compile.
def test_whole_clients_are_protected_from_the_command_line(call, tmp_path):
  data, folder = tmp_path / "data", tmp_path / "run"
  data.mkdir()
  own_table.write(data)
  run = (
      "pvi", "--config=own_table:rounds=3", *TINY, "--config.unit=client",
      "--config.server.share=0.5", "--delta=0.01", "--epsilon=2",
      f"--data_dir={data}", f"--workdir={folder}",
  )
  done = call(*run)
  assert done.returncode == 0, done.stderr
  assert "3 rounds spend epsilon 2 with --config.visit.noise_mul" in done.stderr
  assert "client: epsilon" in done.stdout
  summary = json_of(folder / "guarantees.json")
  config = json_of(folder / "config.json")
  release = federation.round_release(
      3, share=0.5, clip_norm=2.0,
      noise_multiplier=config["visit"]["noise_multiplier"],
  )
  expected = accounting.guarantee(
      release, steps=3, delta=0.01, level="client"
  ).epsilon
  assert summary["every_client"]["epsilon"] == expected
  assert 1.9 < expected <= 2
  (row,) = summary["clients"]
  done = call("verify", folder / row["statement"])
  assert done.returncode == 0 and "FALSE" not in done.stdout
  for path in folder.glob("**/*.json*"):
    assert not {"hospital", "north"} & set(path.read_text().split('"'))
  done = call(*run, "--config.server.order=sequential")
  assert done.returncode == 1 and "server='synchronous'" in done.stderr


@pytest.mark.parametrize("unit", ["example", "client"])
def test_the_noise_for_an_epsilon_is_the_least(tmp_path, unit):
  own_table.write(tmp_path)
  config = own_table_preset.own_table(rounds=3)
  config = dataclasses.replace(config, unit=unit)
  rows = config_lib.load(config, tmp_path)
  found = config_lib.spend(config, rows, 3.0)
  spec = config_lib.build(found, rows)
  spent = [spec.guarantee(m, 3).epsilon for m in range(len(spec.releases))]
  assert 2.95 < max(spent) <= 3 and found.target_epsilon == 3
  assert min(spec.most_visits) >= 3
  for bad in (0.0, -1.0, float("nan")):
    with pytest.raises(plan.PlanError, match="epsilon="):
      config_lib.spend(config, rows, bad)


def made(module, **arguments):
  """Returns the config of a preset."""
  return getattr(module, module.__name__.rpartition(".")[2])(**arguments)


@pytest.mark.parametrize(
    "module, deltas",
    [(adult, [1e-3, 1e-3]), (own_table_preset, [1e-4, 1e-4])],
)
def test_delta_is_as_published_for_adult_and_else_well_below_one_unit(
    module, deltas
):
  config = made(module)
  found = [
      config_lib.default_delta(config.table, size) for size in (955, 1000)
  ]
  assert found == deltas


@pytest.mark.parametrize("module", [adult, own_table_preset])
def test_presets_are_complete_and_private_by_default(module):
  assert module.__name__.rpartition(".")[2] in presets.PVI_NAMES
  config = made(module)
  assert config.target_epsilon == 1.0 and config.visit.noise_multiplier > 0
  plain = made(module, private=False)
  assert plain.visit.noise_multiplier == 0 and plain.target_epsilon is None
