"""Statements computed again: the table, the sentence, the exit status."""

import json

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import report
from episodic_dp.analysis import costs
from episodic_dp.cli import verify
from tests import plans
from tests.refusals import assert_refused
from tests.stored import json_of


@pytest.fixture
def written(make_run, tmp_path):
  """Writes a statement after a change of its data; returns its path."""

  def write(change=lambda data: None):
    data = costs.account(make_run())
    change(data)
    path = tmp_path / "statement.json"
    path.write_text(json.dumps(data))
    return path

  return write


def test_a_statement_is_written_and_holds(call, tmp_path):
  path = tmp_path / "a" / "statement.json"
  arguments = ("--config=glyphs", "--config.steps=10", "--format=json")
  first = call("account", *arguments, f"--statement={path}")
  assert first.returncode == 0, first.stderr
  assert json.loads(first.stdout) == json_of(path)
  done = call("verify", path)
  assert done.returncode == 0, done.stderr
  table, _, limits = done.stdout.partition("\n\n")
  assert limits.startswith("Delta 1e-05 is at least 1 / 480000")
  assert " ".join(limits.split()).endswith(verify.LIMITS)
  header, _, *rows = [line.split() for line in table.splitlines()]
  assert header == ["level", "stated", "recomputed", "verdict"]
  data = json_of(path)
  assert [row[0] for row in rows] == list(data["guarantees"])
  for level, stated, recomputed, verdict in rows:
    assert stated == recomputed == str(data["guarantees"][level]["epsilon"])
    assert verdict == "holds"


@pytest.mark.parametrize("name", ["guarantee.json", "privacy_statement.json"])
def test_a_run_or_a_model_is_verified_by_its_statement(call, written, name):
  path = written()
  path.rename(path.parent / name)
  done = call("verify", path.parent)
  assert done.returncode == 0, done.stderr
  assert done.stdout.count(" holds") == 3
  (path.parent / "adaptation_statement.json").touch()
  done = call("verify", path.parent)
  assert done.returncode == 1 and "give one of these files" in done.stderr


def test_a_false_statement_ends_in_one_sentence_and_status_1(call, written):
  path = written(
      lambda data: data["guarantees"]["class"].update(epsilon=0.1)
  )
  done = call("verify", path)
  assert done.returncode == 1
  assert "guarantees.class.epsilon is stated as 0.1" in done.stderr
  assert "promises more than its entries give" in done.stderr
  verdicts = [line.split()[-1] for line in done.stdout.splitlines()[2:]]
  assert verdicts == ["holds", "FALSE", "holds"]


@pytest.mark.parametrize(
    "change,match",
    [
        (lambda d: d["entries"][0].update(steps=61), "promises.*differences: "),
        (lambda d: d["guarantees"]["task"]["assumptions"].pop(), "assumptions"),
        (
            lambda d: d["guarantees"]["class"]["assumptions"].append("Fine."),
            "stated as 'Fine.' and recomputed as None",
        ),
        (lambda d: d.update(comment="x"), "statement.comment"),
        (lambda d: d.update(schema=0), "schema 0, but this version"),
        (lambda d: d.update(library="episodic_dp 0", steps=1), "written by"),
    ],
)
def test_what_does_not_hold_is_told_with_the_file(
    written, change, match, capsys
):
  path = written(change)
  assert_refused(
      plan.PlanError, f"^{path}.*{match}", verify.main, None, str(path)
  )
  del capsys


def test_a_file_without_text_is_told(written):
  path = written()
  path.write_bytes(b"\xff\xfe\x00")
  assert_refused(plan.PlanError, "is not JSON", verify.main, None, str(path))


def test_strange_names_are_refused_in_one_line_that_can_be_printed(written):
  strange = "\ud800\n" + "x" * 300
  text = json.dumps(json.loads(written().read_text()))
  path = written()
  path.write_text(text.replace('"class"', json.dumps(strange)))
  with pytest.raises(plan.PlanError, match="printable characters") as e:
    verify.main(None, str(path))
  assert str(e.value).isprintable() and len(str(e.value)) < 400


def test_a_seeded_config_says_so(make_run):
  statement = costs.account(make_run(private_seed=3))
  assert statement["fixed_seed"]
  assert statement["guarantees"]["task"]["caveat"] == report.SEEDED
  assert '3' not in json.dumps(statement["guarantees"]["task"]["caveat"])


def test_levels_without_a_guarantee_and_the_seed_are_told(tmp_path, capsys):
  release = plans.release(
      plans.tree("class image", 6, 4),
      plans.sampling(6, 2, way=3, shot=1, query=1, form="disjoint"), "episode",
      1, clip_norm=1,
  )
  ledger = accounting.Ledger().add(release, steps=3)
  stated = accounting.run_statement(
      ledger, delta=1e-5, fixed_seed=True
  )
  path = tmp_path / "statement.json"
  path.write_text(json.dumps(stated))
  verify.main(None, str(path))
  said = " ".join(capsys.readouterr().out.split())
  assert "No guarantee for level 'class': FixedSize(n=6) samples every" in said
  assert report.SEEDED in said
