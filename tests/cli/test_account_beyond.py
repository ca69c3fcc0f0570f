"""--group, --curve and --ledger of the accountant's command line."""

import csv
import json

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.output import files

H = plan.Hierarchy.regular((400, 10), levels=("user", "record"))


@pytest.fixture(name="runs")
def _runs(tmp_path):
  """Three work directories, one a copy of another, and a file of queries."""
  for name, z, lineage in (
      ("a", 2.0, "12"), ("b", 4.0, "56"), ("c", 2.0, "13")
  ):  # fmt: skip
    ledger = accounting.Ledger().add(
        plan.Release(
            H,
            plan.SamplingPlan((plan.Poisson(0.02), plan.All())),
            plan.Mechanism(clip_unit="user", noise_multiplier=z),
        ),
        20,
    )
    files.write_json(
        tmp_path / name / "guarantee.json",
        accounting.run_statement(ledger, delta=1e-5)
        | {"lineage": list(lineage)},
    )
  queries = accounting.Ledger().add_foreign(
      accounting.GaussianQuery(level="user", sensitivity=1.0, noise_scale=20.0)
  )
  files.write_json(tmp_path / "queries.json", queries.as_dict())
  return tmp_path


def test_a_group_is_told_beside_one_unit(call):
  done = call("account", "--config=glyphs", "--group=5")
  assert done.returncode == 0, done.stderr
  (told,) = (
      x for x in done.stdout.splitlines() if "up to 5 units of level" in x
  )
  # As docs/beyond_one_record.md has it.
  assert told.startswith("participant: epsilon 6.848 at delta 1e-05")


def test_several_runs_have_one_epsilon_a_level(call, runs):
  named = f"--ledger={runs}/a,{runs}/b,{runs}/queries.json"
  done = call("account", named, "--format=json")
  assert done.returncode == 0, done.stderr
  result = json.loads(done.stdout)
  found = result["guarantees"]["user"]["epsilon"]
  parts = [levels["user"] for levels in result["parts"].values()]
  assert max(parts) < found < sum(parts)
  assert result["parts"][f"{runs}/queries.json"]["record"] is None
  # A ledger that is read again.
  (runs / "ledger.json").write_text(json.dumps(result["ledger"]))
  # So is all that was printed, as the shell's > writes it.
  (runs / "printed.json").write_text(done.stdout)
  for arguments in (("ledger.json", "--delta=1e-5"), ("printed.json",)):
    again = call("account", f"--ledger={runs}/{arguments[0]}", *arguments[1:])
    assert again.returncode == 0, again.stderr
    assert f"{found:.3f}"[:4] in again.stdout
  # What is saved forgets nothing that forbids a guarantee or weakens it.
  for run, words in (("a", "are of one run"), ("c", "are copies of one run")):
    done = call("account", f"--ledger={runs}/printed.json,{runs}/{run}")
    assert words in done.stderr and "(in " in done.stderr
  (runs / "printed.json").write_text(
      json.dumps(
          result
          | {"fixed_seed": True, "starts": ["x"], "lineages": {}, "delta": 1e-6}
      )
  )
  again = call("account", f"--ledger={runs}/printed.json")
  assert "anyone who knows the seed" in again.stdout
  assert "x (in " in again.stdout and "begins with given" in again.stdout
  both = call("account", f"--ledger={runs}/a,{runs}/printed.json")
  assert f"{runs}/a has 1e-05, {runs}/printed.json has 1e-06" in both.stderr
  table = call("account", named)
  lines = table.stdout.splitlines()
  assert lines[0].split() == ["epsilon", "user", "record"]
  assert any(line.startswith("together") for line in lines)
  assert "means the same units" in table.stdout


def test_curves_are_written_for_every_level(call, runs, tmp_path):
  out = tmp_path / "curves"
  done = call(
      "account", f"--ledger={runs}/queries.json", "--delta=1e-5",
      f"--curve={out}",
  )
  assert done.returncode == 0, done.stderr
  assert sorted(p.name for p in out.iterdir()) == sorted(
      f"user{end}"
      for end in (".json", ".png", "_epsilon_delta.csv", "_trade_off.csv")
  )
  data = json.loads((out / "user.json").read_text())
  rows = list(csv.reader((out / "user_epsilon_delta.csv").open()))
  assert rows[0] == ["epsilon", "delta"]
  assert [list(map(float, r)) for r in rows[1:]] == data["epsilon_delta"]
  assert (out / "user.png").read_bytes().startswith(b"\x89PNG")
  assert "same units" in data["assumptions"][0]
  assert "user: " in done.stdout and "-GDP for errors" in done.stdout


@pytest.mark.parametrize(
    "arguments,part",
    [
        (("--ledger={runs}/a", "--config=glyphs"), "--ledger=DIR,DIR"),
        (("--ledger={runs}/a,{runs}/a",), "named twice"),
        (("--ledger={runs}/nowhere",), "cannot be read"),
        (("--ledger={runs}/queries.json",), "no file of --ledger has one"),
        (("--ledger={runs}/a", "--delta=2.0"), "delta 2.0"),
        (("--ledger={runs}/a", "--sweep=steps"), "--sweep"),
        (("--ledger={runs}/a", "--out={runs}/s"), "--out is of one config"),
        (("--ledger={runs}/a", "--data_dir={runs}"), "--data_dir is of one"),
        (("--ledger={runs}/a", "--same_level=week"), "--same_level=week"),
        (("--config=glyphs", "--delta=1e-3"), "--config.delta"),
        (("--config=glyphs", "--group=0"), "group"),
        (("--config=glyphs", "--curve={runs}/queries.json"), "other --curve"),
        (("--ledger={runs}/a", "--curve={runs}/queries.json"), "other --curve"),
    ],
)
def test_mistakes_end_in_one_sentence(call, runs, arguments, part):
  done = call("account", *(a.format(runs=runs) for a in arguments))
  assert done.returncode != 0 and not done.stdout
  assert part in done.stderr and "Traceback" not in done.stderr
  assert len(done.stderr.strip().splitlines()) == 1
