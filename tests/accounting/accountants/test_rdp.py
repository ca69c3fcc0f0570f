"""The Renyi accountant beside dp_accounting's, by order and in epsilon."""

import math

from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant
import numpy as np
import pytest

from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.profiles import amplification

# Whole orders, where the library's sum is exact, and few, as it is slow.
ORDERS = [*range(2, 65), *range(72, 513, 40), 512]


def ours_and_theirs(p, z, steps=1):
  unit_profiles = (amplification.Amplification((1.0,), p, (1 / z,), 1 / z),)
  run = (base.Phase(unit_profiles, steps),)
  curves = [
      moments.RDP().curve(run, d) for d in amplification.DIRECTIONS
  ]
  place = np.searchsorted(curves[0].orders, ORDERS)
  ours = np.max([curve.rdp[place] for curve in curves], axis=0)
  accountant = rdp_privacy_accountant.RdpAccountant(ORDERS)
  accountant.compose(
      dp_event.PoissonSampledDpEvent(p, dp_event.GaussianDpEvent(z)), steps
  )
  return ours, accountant.rdp


@pytest.mark.parametrize("z", [0.5, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("p", [1e-4, 0.004, 0.3])
def test_agrees_with_the_library_on_the_same_orders(p, z):
  ours, theirs = ours_and_theirs(p, z)
  # Its sums are near 1: 1e-16 of that is lost, and more at high orders.
  lost = 1e-12 / (np.asarray(ORDERS) - 1)
  assert (ours >= theirs * (1 - 1e-9) - lost).all()
  of_use = theirs <= theirs[0] + 100
  assert (ours <= theirs * (1 + 1e-3) + lost)[of_use].all()
  for steps, delta in ((1, 1e-5), (250, 1e-6), (10**6, 1e-12)):
    epsilons = [
        rdp_privacy_accountant.compute_epsilon(
            ORDERS, (steps * rdp).tolist(), delta
        )[0]
        for rdp in (ours, theirs)
    ]
    assert epsilons[0] == pytest.approx(epsilons[1], rel=1e-3, abs=1e-9)


def test_fractional_orders_matter_where_epsilon_is_large():
  z, steps, delta = 0.5, 1000, 1e-6
  unit_profiles = (amplification.Amplification((), 1.0, (), 1 / z),)
  curve = moments.RDP().curve((base.Phase(unit_profiles, steps),), "remove")
  whole = curve.orders == np.round(curve.orders)
  coarse = moments.RenyiCurve(curve.orders[whole], curve.rdp[whole])
  # With every real order: the least of a l + b / (l - 1).
  rho = steps / (2 * z * z)
  best = rho + 2 * math.sqrt(-rho * math.log(delta))
  assert curve.epsilon(delta) <= best * 1.002
  assert coarse.epsilon(delta) > 1.5 * curve.epsilon(delta)
