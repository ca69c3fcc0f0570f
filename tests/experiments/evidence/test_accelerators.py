"""Steps as a GPU or a TPU gets them, and the page that describes them."""

import jax
import pytest

from episodic_dp.models.cpu import direct
from episodic_dp.models.cpu import first_block
from episodic_dp.models.cpu import wide_block
from experiments.evidence import accelerators

RIDGE = "RidgeHead"


def variant(label):
  (found,) = (v for v in accelerators.variants() if v.label == label)
  return found


@pytest.mark.parametrize(
    "label", [pytest.param("ANIL, first order", marks=pytest.mark.slow), RIDGE]
)
def test_nothing_of_a_cpu_gets_in(monkeypatch, label):
  def refused(*arguments):
    raise AssertionError(f"a form of a CPU was taken: {arguments}")

  made = variant(label)  # Its network was looked at on this machine.
  for form in (first_block, wide_block):
    monkeypatch.setattr(form, "apply", refused)
  monkeypatch.setattr(direct, "same", refused)
  # Wide enough for every form of a CPU.
  program = accelerators.read(made, width=64)
  assert accelerators.foreign_calls(program) == set()
  assert program.work.convolutions == 0 and program.work.products > 10


def test_a_call_that_a_platform_does_not_have_is_seen(monkeypatch):
  monkeypatch.setattr(accelerators, "PLATFORMS", {"cpu": "gpu"})
  monkeypatch.setattr(accelerators, "CALLS", {"cpu": set()})
  program = accelerators.read(variant(RIDGE), width=4)
  assert any("potrf" in c for c in accelerators.foreign_calls(program))


def test_operations_are_those_of_plain_loops():
  def products(a, b):
    def step(total, _):
      return total @ b, None

    return jax.lax.scan(step, a @ b, None, length=3)[0]

  shapes = [jax.ShapeDtypeStruct(s, "float32") for s in ((2, 5), (5, 5))]
  work = accelerators._work(jax.make_jaxpr(products)(*shapes).jaxpr)
  assert work.operations == 4 * 2 * 2 * 5 * 5
  assert work.bytes == 4 * 4 * (10 + 25 + 10)


@pytest.mark.slow  # Every learner, for two platforms.
def test_the_page_is_what_the_programs_are():
  assert accelerators.FILE.read_text("utf-8") == accelerators.document(), (
      "run python -m experiments.evidence --only=accelerators --write"
  )
  for one in accelerators.variants():
    assert accelerators.foreign_calls(accelerators.read(one, width=4)) == set()
