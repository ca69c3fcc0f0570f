"""Learners whose tasks share the weights: cases, rows, and PyTorch's sums."""

import numpy as np
import pytest

from experiments.benchmarks import harness
from experiments.benchmarks import settings
from experiments.benchmarks import shared_problem
from experiments.benchmarks import shared_weights
from experiments.benchmarks import sums

CLIP = 0.5


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["protonet", "ridge", "supervised"])
def test_every_way_finds_the_sum_of_float64_and_so_do_we(learner):
  pytest.importorskip(
      "torch", reason="torch is not installed: pip install -e '.[bench]'"
  )
  # Lazy import: it imports torch.
  from experiments.benchmarks import torch_shared

  run = settings.shared_weights(
      learner, query=2, width=4, shape=(16, 16, 3), tasks=3, clip_norm=CLIP
  )
  _, ours = run.first_sum(3)
  support, query = (
      (np.asarray(part.images), np.asarray(part.labels))
      for part in run.drawn_tasks()
  )
  problem = shared_problem.Problem(
      learner, run.init().params, support, query, CLIP, "float64"
  )
  exact = torch_shared.make("loop", problem)()
  assert sums.difference(ours, exact) < 1e-3
  for way in ("vmap", "ghost"):
    found = torch_shared.make(way, problem)()
    assert sums.difference(found, exact) < 1e-9, way
  for way in ("loop", "vmap", "ghost"):
    alone = problem._replace(dtype="float32")
    parts = [torch_shared.make(way, alone.part(i, 2))() for i in range(2)]
    assert sums.difference(sums.added(parts), exact) < 1e-3, way


def test_cases_are_asked_for_by_parts():
  def options(*only, smoke=False):
    return harness.Options(smoke=smoke, repeats=1, only=only)

  assert len(shared_weights.chosen(options())) == 45
  (case,) = shared_weights.chosen(
      options("ridge", "width=32", "query=15", "size=84")
  )
  assert case.parts == ("ridge", "width=32", "query=15", "size=84")
  assert case.tasks % shared_weights.workers.CORES == 0
  assert len(shared_weights.chosen(options("supervised"))) == 9
  with pytest.raises(ValueError, match="no case is ridge, width=5: ask for"):
    shared_weights.chosen(options("ridge", "width=5"))


def test_the_floor_is_of_plain_convolutions():
  one = shared_weights.Case("supervised", 8, 1, (16, 16, 3))
  first, others = 256 * 3 * 8, (64 + 16 + 4) * 8 * 8
  assert one.operations == 2 * 9 * (2 * first + 3 * others)
  task = shared_weights.Case("ridge", 8, 15, (16, 16, 3))
  assert task.operations == 80 * one.operations


def test_rows_are_the_worst_of_each_learner_and_width():
  def found(torch, floor):
    return {
        "best": "loop",
        "per_task": {"ours": {"seconds": 0.001}},
        "ratios": {
            "torch_to_ours": {"median": torch},
            "ours_to_floor": {"median": floor},
        },
    }

  cases = [
      shared_weights.Case("ridge", 32, query, (28, 28, 1)) for query in (1, 15)
  ]
  every = {
      ", ".join(case.parts): one
      for case, one in zip(cases, (found(3.0, 1.5), found(2.0, 1.1)))
  }
  rows = list(shared_weights.rows(cases, every))
  assert [row["value"] for row in rows] == [2.0, 1.5]
  assert [row["reached"] for row in rows] == [False, True]
  assert rows[0]["note"] == "query=15, size=28; loop"
  assert rows[1]["note"] == "query=1, size=28; 1 ms a task"
