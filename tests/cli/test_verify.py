"""Statements computed again: the table, the sentence, the exit status."""

import json

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import privacy_statement
from episodic_dp.analysis import costs
from episodic_dp.cli import verify


@pytest.fixture
def written(make_run, tmp_path):
  """What changes a statement -> the path of the changed one."""

  def write(change=lambda data: None):
    data = costs.account(make_run())
    change(data)
    path = tmp_path / "statement.json"
    path.write_text(json.dumps(data))
    return path

  return write


@pytest.mark.parametrize("flag", ["", "--statement="])
def test_a_statement_is_written_and_holds(call, tmp_path, flag):
  path = tmp_path / "a" / "statement.json"
  arguments = ("--config=glyphs", "--config.steps=10", "--format=json")
  first = call("account", *arguments, f"--statement={path}")
  assert first.returncode == 0, first.stderr
  assert json.loads(first.stdout) == json.loads(path.read_text())
  done = call("verify", f"{flag}{path}")
  assert done.returncode == 0, done.stderr
  table, _, limits = done.stdout.partition("\n\n")
  assert " ".join(limits.split()) == verify.LIMITS
  header, _, *rows = [line.split() for line in table.splitlines()]
  assert header == ["level", "stated", "recomputed", "verdict"]
  data = json.loads(path.read_text())
  assert [row[0] for row in rows] == list(data["guarantees"])
  for level, stated, recomputed, verdict in rows:
    assert stated == recomputed == str(data["guarantees"][level]["epsilon"])
    assert verdict == "holds"


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
    "change,told",
    [
        (
            lambda said: said.pop(1),
            "assumptions.1 is stated as nothing and recomputed as",
        ),
        (
            lambda said: said.append("All is well."),
            "is stated as 'All is well.' and recomputed as nothing",
        ),
    ],
)
def test_an_assumption_too_few_or_too_many_is_named(
    call, written, change, told
):
  path = written(
      lambda data: change(data["guarantees"]["class"]["assumptions"])
  )
  done = call("verify", path)
  assert done.returncode == 1 and told in done.stderr


@pytest.mark.parametrize(
    "change,match",
    [
        (lambda d: d["entries"][0].update(steps=61), "promises.*more diff"),
        (lambda d: d["guarantees"]["task"]["assumptions"].pop(), "assumptions"),
        (lambda d: d.update(comment="x"), "'comment' that nothing reads"),
        (lambda d: d.update(schema=0), "schema 0 and this version"),
        (lambda d: d.update(library="episodic_dp 0", steps=1), "written by"),
    ],
)
def test_what_does_not_hold_is_told_with_the_file(
    written, change, match, capsys
):
  path = written(change)
  with pytest.raises(plan.PlanError, match=f"^{path}.*{match}") as e:
    verify.run(str(path))
  assert "\n" not in str(e.value)
  del capsys


def test_half_a_file_is_told(written):
  path = written()
  path.write_text(path.read_text()[:500])
  with pytest.raises(plan.PlanError, match="perhaps cut short"):
    verify.run(str(path))
  path.write_bytes(b"\xff\xfe\x00")
  with pytest.raises(plan.PlanError, match="it is not text"):
    verify.run(str(path))


@pytest.mark.parametrize(
    "arguments,part",
    [
        ((), "give one privacy statement"),
        (("x.json", "--statement=x.json"), "give one privacy statement"),
        (("x.json", "y.json"), "argument 'y.json' is not a flag"),
        (("nowhere.json",), "nowhere.json: it cannot be read"),
    ],
)
def test_mistakes_end_in_one_sentence(call, arguments, part):
  done = call("verify", *arguments)
  assert done.returncode == 1 and not done.stdout
  assert part in done.stderr and len(done.stderr.splitlines()) == 1


def test_strange_names_are_refused_in_one_line_that_can_be_printed(written):
  strange = "\ud800\n" + "x" * 300
  text = json.dumps(json.loads(written().read_text()))
  path = written()
  path.write_text(text.replace('"class"', json.dumps(strange)))
  with pytest.raises(plan.PlanError, match="printable characters") as e:
    verify.run(str(path))
  assert str(e.value).isprintable() and len(str(e.value)) < 400


def test_a_seeded_config_says_so(make_run):
  statement = costs.account(make_run(private_seed=3))
  assert statement["fixed_seed"]
  assert statement["guarantees"]["task"]["caveat"] == privacy_statement.SEEDED
  assert '3' not in json.dumps(statement["guarantees"]["task"]["caveat"])


@pytest.fixture
def signed(call, written, tmp_path):
  """A statement signed with weights: (statement, public key, weights)."""
  pytest.importorskip("cryptography")
  path, key, weights = written(), tmp_path / "key", tmp_path / "weights.npz"
  weights.write_bytes(b"weights")
  done = call("sign", f"--new_key={key}")
  assert done.returncode == 0 and "key.pub is its public key" in done.stdout
  done = call(
      "sign", f"--key={key}", f"--statement={path}", f"--weights={weights}"
  )
  assert done.returncode == 0, done.stderr
  assert f"{path}.sig: {path} and {weights} (sha256:" in done.stdout
  return path, tmp_path / "key.pub", weights


def test_levels_without_a_guarantee_and_the_seed_are_told(tmp_path, capsys):
  release = plan.Release(
      plan.Hierarchy.regular((6, 4), levels=("class", "image")),
      plan.SamplingPlan(
          (plan.FixedSize(6), plan.FixedSize(2)),
          episode=plan.Episode(way=3, shot=1, query=1, form="disjoint"),
      ),
      plan.Mechanism(clip_unit="episode", clip_norm=1, noise_multiplier=1),
  )
  ledger = accounting.Ledger().add(release, steps=3)
  stated = privacy_statement.run_statement(
      ledger, delta=1e-5, fixed_seed=True
  )
  path = tmp_path / "statement.json"
  path.write_text(json.dumps(stated))
  verify.run(str(path))
  said = " ".join(capsys.readouterr().out.split())
  assert "No guarantee for level 'class': FixedSize(n=6) draws every" in said
  assert privacy_statement.SEEDED in said


def test_who_signed_is_told(call, signed):
  path, public, weights = signed
  done = call(
      "verify", path, f"--public_key={public}", f"--weights={weights}"
  )
  assert (done.returncode, done.stderr) == (0, "")
  last = done.stdout.splitlines()[-1]
  assert last.startswith("The holder of the key SHA256:")
  assert last.endswith(f"signed this statement for the weights {weights}.")
  done = call("verify", path, f"--public_key={public}")
  assert done.returncode == 0 and "were not looked at" in done.stdout
  assert "or that some weights came of it" in " ".join(done.stdout.split())


def test_what_was_tampered_with_ends_in_one_sentence(call, signed, tmp_path):
  path, public, weights = signed
  both = (f"--public_key={public}", f"--weights={weights}")
  kept = {p: p.read_bytes() for p in (path, weights, tmp_path / f"{path}.sig")}

  def refused(part, *arguments):
    done = call("verify", path, *arguments)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert part in done.stderr and not done.stdout
    for place, content in kept.items():
      place.write_bytes(content)

  for place, part in zip(
      kept, ("is of another statement", "these are other weights", "changed")
  ):
    content = kept[place]
    if part == "changed":
      data = json.loads(content)
      data["signature"] = "A" + data["signature"][1:]
      place.write_text(json.dumps(data))
    else:
      place.write_bytes(content + b" ")
    refused(part, *both)
  (tmp_path / f"{path}.sig").write_bytes(b"{")
  refused("cannot be read as a signature", *both)
  (tmp_path / f"{path}.sig").unlink()
  refused(f"{path} is not signed (there is no {path}.sig)", *both)
  refused("error: no_key cannot be read", "--public_key=no_key")
  refused("give --public_key=FILE", f"--weights={weights}")
  refused("is no public key", f"--public_key={tmp_path / 'key'}")


def test_only_what_holds_is_signed(call, written, tmp_path):
  pytest.importorskip("cryptography")
  path = written(lambda data: data["guarantees"]["class"].update(epsilon=0.1))
  call("sign", f"--new_key={tmp_path / 'key'}")
  one = (f"--key={tmp_path / 'key'}", f"--statement={path}")
  assert "does not hold" in call("sign", *one).stderr
  assert not (tmp_path / "statement.json.sig").exists()
  for arguments, part in (
      ((), "give --key=FILE and --statement=FILE"),
      ((*one, "--new_key=x"), "give it alone"),
      ((*one, f"--weights={tmp_path}"), "would lie among the weights"),
      ((f"--new_key={tmp_path / 'key'}",), "key exists: choose another name"),
  ):
    done = call("sign", *arguments)
    assert done.returncode == 1 and part in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_nothing_else_is_replaced_by_a_signature_or_a_statement(
    call, signed, tmp_path
):
  path, public, weights = signed
  (tmp_path / "notes.txt").write_text("notes")
  kept = {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
  one = (f"--key={tmp_path / 'key'}", f"--statement={path}")
  beside = tmp_path / "beside"
  beside.mkdir()
  for place in (
      path, public, weights, tmp_path / "key", beside / ".." / path.name
  ):  # fmt: skip
    done = call("sign", *one, f"--signature={place}")
    assert done.returncode == 1 and not done.stdout
    assert done.stderr == (
        f"error: {place} is there already and is no signature: choose another"
        " name as --signature\n"
    )
  for place in (tmp_path / "notes.txt", f"{path}.sig", beside):
    done = call("account", "--config=glyphs", f"--statement={place}")
    assert done.returncode == 1 and not done.stdout
    assert "is no privacy statement: choose another name as" in done.stderr
  assert {p: p.read_bytes() for p in kept} == kept
  # An earlier one of the same kind makes room.
  assert call("sign", *one).returncode == 0
  done = call("account", "--config=glyphs:steps=3", f"--statement={path}")
  assert done.returncode == 0 and path.read_bytes() != kept[path]
