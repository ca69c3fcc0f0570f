"""Training on tasks that share records, with a guarantee for the records."""

import dataclasses
import importlib.util
import json
import math
import pathlib
import sys

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp import training


def _load():
  """The module beside this file, once for all tests that use it."""
  if "tiny_run" not in sys.modules:
    path = pathlib.Path(__file__).with_name("tiny_run.py")
    spec = importlib.util.spec_from_file_location("tiny_run", path)
    sys.modules["tiny_run"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["tiny_run"])
  return sys.modules["tiny_run"]


tiny_run = _load()


def test_independent_tasks_train_with_a_guarantee(tmp_path):
  """Every task draws its classes anew; all levels are told of."""
  job = tiny_run.job(3)
  hierarchy = plan.Hierarchy.regular((60, 4), levels=("class", "image"))
  job = dataclasses.replace(
      job,
      train=dataclasses.replace(job.train, hierarchy=hierarchy),
      plan=plan.SamplingPlan(
          (plan.FixedSize(tiny_run.WAY), plan.FixedSize(3)),
          episode=plan.Episode(
              way=tiny_run.WAY, shot=1, query=2, form="independent", tasks=4
          ),
      ),
      mechanism=plan.Mechanism(clip_unit="episode", noise_multiplier=8.0),
  )
  assert training.train(job, tmp_path).stopped == "done"
  statement = json.loads((tmp_path / "guarantee.json").read_text())
  assert list(statement["guarantees"]) == ["class", "image"]
  for level, found in statement["guarantees"].items():
    (unit,) = found["units"]
    assert unit["kind"] == "recurrence" and unit["places"] == 4
    expected = accounting.guarantee(
        hierarchy, job.plan, job.mechanism, steps=3, delta=1e-5, level=level
    )
    assert 0 < expected.epsilon < math.inf
    assert found["epsilon"] == expected.epsilon
