"""Training on tasks that share records, with a guarantee for the records."""

import dataclasses
import json
import math

from episodic_dp import accounting
from episodic_dp import plan
from tests.training import tiny_run


def test_independent_tasks_train_with_a_guarantee(tmp_path):
  """Every task draws its classes anew; all levels are told of."""
  spec = tiny_run.spec(3)
  hierarchy = plan.Hierarchy.regular((60, 4), levels=("class", "image"))
  spec = dataclasses.replace(
      spec,
      train=dataclasses.replace(spec.train, hierarchy=hierarchy),
      release=plan.Release(
          hierarchy,
          plan.SamplingPlan(
              (plan.FixedSize(tiny_run.WAY), plan.FixedSize(3)),
              episode=plan.Episode(
                  way=tiny_run.WAY, shot=1, query=2, form="independent", tasks=4
              ),
          ),
          plan.Mechanism(clip_unit="episode", noise_multiplier=8.0),
      ),
  )
  assert tiny_run.train(spec, tmp_path).stopped == "done"
  statement = json.loads((tmp_path / "guarantee.json").read_text())
  assert list(statement["guarantees"]) == ["class", "image"]
  for level, found in statement["guarantees"].items():
    (unit,) = found["units"]
    assert unit["kind"] == "recurrence" and unit["places"] == 4
    expected = accounting.guarantee(
        spec.release, steps=3, delta=1e-5, level=level
    )
    assert 0 < expected.epsilon < math.inf
    assert found["epsilon"] == expected.epsilon
