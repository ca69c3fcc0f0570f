"""The accountant's command line: numbers, table, JSON, errors."""

import json

from episodic_dp import accounting
from episodic_dp.accounting import report
from episodic_dp.accounting import statement
from episodic_dp.analysis import costs
from episodic_dp.output import files
from tests.stored import through_json


def test_levels_are_those_of_the_library(make_run):
  c = make_run()
  result = costs.account(c)
  expected = accounting.guarantees(
      c.release, steps=c.steps, delta=c.delta
  )
  assert result["guarantees"] == {k: g.as_dict() for k, g in expected.items()}
  assert result["no_guarantee"] == {} and result["steps"] == 60


def test_a_backbone_is_confessed_before_the_run(make_run, tmp_path):
  file = tmp_path / "features.onnx"
  file.write_bytes(b"a network")
  run = make_run(
      data={"name": "own_data", "options": {"backbone": {"file": str(file)}}}
  )
  result = costs.account(run)
  assert result["backbone"] == files.sha256(b"a network")
  for g in result["guarantees"].values():
    assert g["caveat"].startswith(report.EMBEDDED)


def test_table_shows_every_number_and_assumption(make_run):
  run = make_run()
  result = costs.account(run)
  text = costs.table(run, result)
  lines = text.splitlines()
  header = next(line for line in lines if line.startswith("level"))
  for column in ("epsilon", "delta", "direction", "eta", "distance"):
    assert column in header
  for level, g in result["guarantees"].items():
    (row,) = [x for x in lines if x.startswith(f"{level} ") and "1e-05" in x]
    assert report.rounded_up(g["epsilon"]) in row
    assert f"{g['inclusion_rate']:.4g}" in row
    assert f"add or remove one {level}" in row
    for sentence in g["assumptions"]:
      assert sentence in text


def test_json_of_a_shipped_config(call):
  done = call(
      "account", "--config=omniglot", "--format=json", "--config.steps=20"
  )
  assert done.returncode == 0, done.stderr
  result = json.loads(done.stdout)
  assert result["steps"] == 20
  found = result["guarantees"]
  assert list(found) == ["participant", "class", "image"]
  assert 0 < found["participant"]["epsilon"] < 1
  # The images recur in too many participants to be worth a number.
  assert min(found[level]["epsilon"] for level in ("class", "image")) > 100
  for level, places in (("class", 1881), ("image", 228)):
    assert f"that hold it, at most {places};" in found[level]["caveat"]


def test_what_an_attacker_gains_is_printed_and_verified(make_run):
  run = make_run()
  result = costs.account(run, attacks=True)
  assert "attacks" not in costs.account(run)
  assert list(result["attacks"]) == list(result["guarantees"])
  assert statement.verify(result).differences == ()
  for name in ("true_positive_rate", "gaussian_mu"):
    less = through_json(result)
    less["attacks"]["task"][name] *= 0.99
    (difference,) = statement.verify(less).differences
    assert difference.false
    assert difference.where == ("attacks", "task", name)


def test_epsilon_over_delta_is_written_where_asked(call, tmp_path):
  out = tmp_path / "new" / "folder"
  done = call(
      "account", "--config=glyphs", "--config.steps=10", "--sweep=delta",
      f"--out={out}", "--format=json",
  )
  assert done.returncode == 0, done.stderr
  assert (out / "sweep_delta.png").read_bytes().startswith(b"\x89PNG")
  data = json.loads((out / "sweep_delta.json").read_text())
  own = data["deltas"].index(data["delta"])
  for level, g in json.loads(done.stdout)["guarantees"].items():
    epsilons = data["epsilons"][level]
    assert epsilons[own] == g["epsilon"]
    assert epsilons == sorted(epsilons, reverse=True) and epsilons[-1] < 100
    gains = zip(
        data["true_positive_rates"][level], data["false_positive_rates"]
    )
    assert all(1 > true > false for true, false in gains)
