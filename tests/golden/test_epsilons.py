"""Epsilons of sixty plans, recorded from version 1.0.

A value may fall where a proof was found. It may rise only where CHANGELOG.md
lists the bound that became looser. Record values again with
`python -m tests.golden.test_epsilons` and read the difference.
"""

import json
import math
import pathlib

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from tests.golden import plans

FILE = pathlib.Path(__file__).with_name("epsilons.json")
ACCOUNTANTS = ("pld", "rdp", "moments")
RELATIONS = ("add-or-remove", "replace-one")
RELEASES = plans.plans()


def epsilons(release):
  """Compute "level accountant relation" -> epsilon, None where unproved."""
  found = {}
  for level in release.hierarchy.levels:
    for accountant in ACCOUNTANTS:
      for relation in RELATIONS:
        name = f"{level} {accountant} {relation}"
        try:
          value = accounting.guarantee(
              release, steps=plans.STEPS, delta=plans.DELTA, level=level,
              accountant=accountant, neighbours=relation,
          ).epsilon
          found[name] = float(f"{value:.10g}")
        except plan.UnsoundPlanError:
          found[name] = None
  return found


@pytest.mark.parametrize("name", RELEASES)
def test_no_epsilon_is_above_the_recorded_one(name):
  recorded = json.loads(FILE.read_text())[name]
  found = epsilons(RELEASES[name])
  assert found.keys() == recorded.keys()
  for case, value in recorded.items():
    if value is None:
      assert found[case] is None, case
    elif math.isfinite(value):
      assert found[case] <= value * (1 + 1e-6), case
      assert found[case] > value * (1 - 1e-6), f"{case}: record the new value"


if __name__ == "__main__":
  FILE.write_text(json.dumps(
      {name: epsilons(release) for name, release in RELEASES.items()},
      indent=0,
  ) + "\n")
