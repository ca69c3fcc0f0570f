"""The accountants by name."""

from episodic_dp import plan as plan_lib
from episodic_dp.accounting.accountants import pld
from episodic_dp.accounting.accountants import rdp
from episodic_dp.accounting.accountants.base import Accountant

_MAKERS = {"pld": pld.PLD, "rdp": rdp.RDP, "moments": rdp.Moments}
NAMES = tuple(_MAKERS)


def get(accountant: str | Accountant) -> Accountant:
  """Return the accountant of a name, one of `NAMES`; instances pass.

  Raises:
    PlanError: an unknown name.
  """
  if isinstance(accountant, Accountant):
    return accountant
  if not isinstance(accountant, str) or accountant not in _MAKERS:
    raise plan_lib.PlanError(
        f"unknown accountant {accountant!r}: choose one of"
        f" {', '.join(map(repr, NAMES))}"
    )
  return _MAKERS[accountant]()
