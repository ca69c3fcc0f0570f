"""The command that sets runs side by side."""

import json

import pytest

from tests.training import tiny_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  folder = tmp_path_factory.mktemp("runs") / "key=0"
  tiny_run.train(tiny_run.spec(3), folder)
  return folder


def test_a_run_that_was_trained_is_read(call, run):
  done = call("compare", run.parent, "--format=json")
  assert (done.returncode, done.stderr) == (0, "")
  (found,) = json.loads(done.stdout)["runs"]
  assert found["name"] == str(run) and found["finished"]
  stated = json.loads((run / "guarantee.json").read_text())["guarantees"]
  assert {k: v["epsilon"] for k, v in found["stated"].items()} == {
      level: g["epsilon"] for level, g in stated.items()
  }


def test_a_table_is_printed(call, run):
  done = call("compare", run)
  header, _, line, *_ = done.stdout.splitlines()
  assert header.split()[:4] == ["run", "steps", "validation", "score"]
  assert line.startswith(str(run)) and " %" in line
  assert "Student's t" in done.stdout


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ((), "name work directories"),
        (("no-such-run",), "no-such-run cannot be read"),
    ],
)
def test_mistakes_are_one_sentence(call, arguments, sentence):
  done = call("compare", *arguments)
  assert done.returncode == 1 and not done.stdout
  (line,) = done.stderr.splitlines()
  assert sentence in line
