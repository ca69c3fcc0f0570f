"""The printed theorem, which is offered for comparison only."""

import math

import pytest

from episodic_dp import accounting
from episodic_dp import plan


def test_without_sampling_it_is_the_gaussian_mechanism():
  def normal(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))

  got = accounting.theorem3_as_printed(1.0, 0.5, 1.0)
  truth = normal(0.5 - 0.5) - math.exp(0.5) * normal(-0.5 - 0.5)
  assert got == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize(
    "arguments", [(0.0, 0.5, 1.0), (1.5, 0.5, 1.0), (0.5, -1.0, 1.0),
                  (0.5, 0.5, 0.0)]
)
def test_values_out_of_range(arguments):
  with pytest.raises(plan.PlanError, match="must lie"):
    accounting.theorem3_as_printed(*arguments)
