"""--group and --ledger of the accountant's command line."""

import json

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.output import files
from tests import plans

H = plans.tree("user record", 400, 10)


@pytest.fixture(name="runs")
def _runs(tmp_path):
  """Three work directories, one a copy of another."""
  for name, z, lineage in (
      ("a", 2.0, "12"), ("b", 4.0, "56"), ("c", 2.0, "13")
  ):
    ledger = accounting.Ledger().add(
        plans.release(H, plans.sampling(0.02, plan.All()), "user", z),
        20,
    )
    files.write_json(
        tmp_path / name / "guarantee.json",
        accounting.run_statement(ledger, delta=1e-5, lineage=list(lineage)),
    )
  return tmp_path


def test_a_group_is_told_beside_one_unit(call):
  done = call("account", "--config=glyphs", "--group=5")
  assert done.returncode == 0, done.stderr
  assert "up to 5 units of level 'participant' together" in done.stdout


def test_several_runs_have_one_epsilon_a_level(call, runs):
  named = f"--ledger={runs}/a,{runs}/b"
  done = call("account", named, "--format=json")
  assert done.returncode == 0, done.stderr
  result = json.loads(done.stdout)
  found = result["guarantees"]["user"]["epsilon"]
  parts = [levels["user"] for levels in result["parts"].values()]
  assert max(parts) < found < sum(parts)
  (runs / "ledger.json").write_text(json.dumps(result["ledger"]))
  again = call("account", f"--ledger={runs}/ledger.json", "--delta=1e-5")
  assert f"{found:.3f}"[:4] in again.stdout
  table = call("account", named).stdout
  assert table.splitlines()[0].split() == ["epsilon", "user", "record"]
  assert "together" in table and "have the same units" in table


@pytest.mark.parametrize(
    "arguments,part",
    [
        ("--ledger={runs}/a,{runs}/c", "or of copies of it"),
        ("--ledger={runs}/a,{runs}/a", "is named twice"),
        ("--ledger={runs}/nowhere", "cannot be read"),
        ("--ledger={runs}/a --delta=2.0", "delta=2.0"),
        ("--ledger={runs}/a --out={runs}/s", "--out goes without"),
        ("--ledger={runs}/a --same_level=week", "--same_level=week"),
    ],
)
def test_mistakes_end_in_one_sentence(call, runs, arguments, part):
  done = call("account", *arguments.format(runs=runs).split())
  assert done.returncode != 0 and not done.stdout
  assert part in done.stderr and "Traceback" not in done.stderr
  assert len(done.stderr.strip().splitlines()) == 1
