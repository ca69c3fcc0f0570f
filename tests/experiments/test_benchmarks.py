"""Benchmarks: turns, ratios and rows; peers find the same sums."""

import itertools
import json
import math

import pytest

from experiments.benchmarks import __main__ as benchmarks
from experiments.benchmarks import harness
from experiments.benchmarks import table
from tests import processes
from tests.stored import json_of

FORM = ["machine", "options", "settings", "cases", "rows", "more"]


def turns(*seconds):
  return [harness.Turn(s, 2 * s) for s in seconds]


def run(*arguments):
  return processes.python(
      "-m", "experiments.benchmarks", *arguments, timeout=1800,
      **processes.QUICK,
  )


def test_cases_take_turns_each_first_in_its_turn():
  called = []

  def case(name):
    def measure():
      called.append(name)
      return harness.Turn(len(called), 1.0, value=len(called))

    return measure

  found = harness.interleaved(
      {n: case(n) for n in "abc"}, harness.Options(smoke=True, repeats=3)
  )
  assert called[3:] == list("abc" "bca" "cab")
  assert [(turn.seconds, turn.value) for turn in found["a"]] == (
      [(4, None), (9, None), (11, 11)]
  )


def test_summary_and_ratio():
  summary = harness.summaries({"a": turns(4.0, 2.0, 3.0)}, per=2)["a"]
  assert summary == dict(
      fastest=1.0, slowest=2.0, seconds=1.5, cpu_seconds=3.0, repeats=3
  )
  ratio = harness.ratio(turns(4.0, 2.0, 3.0), turns(2.0, 2.0, 2.0), scale=10)
  assert (ratio["median"], ratio["least"], ratio["most"]) == (15, 10, 20)
  turn = harness.timed(lambda: sum(range(10**5)))
  assert turn.value == sum(range(10**5)) and turn.seconds > 0


@pytest.mark.parametrize(
    "limits,reached,text",
    [
        ({"at_most": 1.1}, True, "| ≤ 1.1× | 1× (0.5–2) | yes |"),
        ({"at_most": 0.9}, False, "| ≤ 0.9× | 1× (0.5–2) | no |"),
        ({"at_least": 1.1}, False, "| ≥ 1.1× | 1× (0.5–2) | no |"),
        ({}, None, "| - | 1× (0.5–2) | - |"),
    ],
)
def test_rows_say_whether_the_target_is_reached(
    tmp_path, limits, reached, text
):
  row = harness.row(
      "it", {"median": 1.0, "least": 0.5, "most": 2}, unit="×", **limits
  )
  assert row["reached"] is reached
  machine = {"device": "cpu", "cpus": 2, "load": 1.0, "load_after": 2.5}
  (tmp_path / "x.json").write_text(
      json.dumps({"machine": machine, "rows": [row]})
  )
  assert f"| it {text} x |" in table.render(tmp_path)


def test_the_readme_holds_the_table_of_the_measurements():
  text = table.README.read_text(encoding="utf-8")
  assert table.replaced(text, table.render()) == text, (
      "run python -m experiments.benchmarks --write"
  )
  names = {path.stem for path in table.FOLDER.glob("*.json")}
  assert names == set(benchmarks.BENCHMARKS)
  for name in names:
    result = json_of(table.FOLDER / f"{name}.json")
    assert list(result) == FORM and not result["options"]["smoke"], name
    assert all(math.isfinite(c["seconds"]) for c in result["cases"].values())


@pytest.mark.parametrize(
    "arguments,reported",
    [
        (("--run=overhead,magic", "--out=x"), "magic"),
        (("--run=sampling", "--smoke", f"--out={table.FOLDER}"), "--out="),
    ],
)
def test_wrong_names_and_folders_are_refused(arguments, reported):
  done = run(*arguments)
  assert done.returncode == 1 and reported in done.stderr


@pytest.mark.slow
def test_one_command_runs_all_of_them(tmp_path):
  done = run("--run=all", "--smoke", f"--out={tmp_path}")
  assert done.returncode == 0, done.stderr
  assert {p.stem for p in tmp_path.iterdir()} == set(benchmarks.BENCHMARKS)
  for path in tmp_path.iterdir():
    result = json_of(path)
    assert list(result) == FORM and result["cases"], path
    assert all(row["value"] >= 0 for row in result["rows"]), path


@pytest.mark.slow
@pytest.mark.parametrize("kind,way", [
    ("maml", "loop"),  # Second order has a loop only.
    *itertools.product(
        ("protonet", "turns", "ridge", "supervised"), ("loop", "batch")
    ),
])
def test_ours_is_the_sum_that_pytorch_finds(kind, way):
  pytest.importorskip("torch", reason="pip install -e '.[bench]'")
  from experiments.benchmarks import peers
  from experiments.benchmarks import steps

  case = steps.Case(kind, 8, 2, 4, inner_steps=2 if kind == "maml" else 0)
  run_ = steps.make_run(case)
  problem = peers.Problem(
      kind, run_.init().params, run_.drawn_tasks(), case.inner_steps, "float64"
  )
  assert peers.difference(
      steps.first_sum(run_, case)[1], problem.torch_sum(way)()
  ) < 1e-4
