"""docs/learners.md says what training and accounting answer today."""

import dataclasses

import pytest

from episodic_dp import learners
from episodic_dp import plan
from experiments.evidence import cases
from experiments.evidence import learners as page
from experiments.evidence import pages

FIXED, POISSON = plan.FixedSize(8), plan.Poisson(0.1)
PARTICIPANT, DISJOINT, _, NOISY, _, SHARED, SINGLE = cases.units()


@pytest.fixture(scope="module")
def answers():
  """Every combination; traced, not compiled, and still 15 seconds of a core."""
  return page.ask_all()


def of(label):
  return {v.label: v for v in cases.variants()}[label]


def why(label, norm, unit, first=FIXED, **clipping):
  """The sentence that refuses it, or ""."""
  refusal = cases.ask(of(label), norm, unit, first, **clipping).refusal
  return refusal.sentence if refusal else ""


@pytest.mark.slow
def test_the_document_is_what_the_code_answers(answers, monkeypatch):
  monkeypatch.setattr(page, "ask_all", lambda: answers)
  assert page.FILE.read_text(encoding="utf-8") == page.document(), (
      "run python -m experiments.evidence --write"
  )


@pytest.mark.slow
def test_what_is_trained_is_guaranteed_and_the_other_way_round(answers):
  guaranteed, trained = set(), set()
  for (variant, unit, first, norm), answer in answers.items():
    what = (variant.label, unit.label, first, norm)
    if answer.training is None:
      assert answer.protected, what
      trained.add((unit, first))
    if not all(isinstance(e, pages.Refusal) for e in answer.levels.values()):
      guaranteed.add((unit, first))
  assert guaranteed == trained


def test_every_learner_sampler_and_norm_is_asked_about():
  kinds = {variant.kind for variant in cases.variants()}
  told = {name: entry[0] for name, entry in learners.LEARNERS.items()}
  assert set(told.values()) - kinds == {learners.FineTuning}
  assert {type(s) for s in cases.SAMPLERS} == set(plan.Stage.__args__)
  for kind in kinds:
    orders = {
        v.options.get("order") for v in cases.variants() if v.kind is kind
    }
    switch = "order" in {f.name for f in dataclasses.fields(kind)}
    assert orders == ({"first", "second"} if switch else {None}), kind


@pytest.mark.parametrize(
    "label,norm,unit,first,text",
    [
        ("MAML, second order", "group", NOISY, POISSON, "second-order leak"),
        ("MAML, first order", "batch", NOISY, POISSON, "mixes examples"),
        ("Supervised", "batch", SINGLE, POISSON, "mixes examples"),
        ("MAML, first order", "group", SHARED, FIXED, "recur as support and"),
        ("Reptile", "group", NOISY, POISSON, "Reptile cannot be trained"),
        ("Reptile", "group", DISJOINT, POISSON, "Poisson class stage"),
        ("MAML, first order", "group", SINGLE, POISSON, "adapts to support"),
        ("MAML, first order", "group", NOISY, POISSON, ""),
        ("MAML, second order", "batch", PARTICIPANT, POISSON, ""),
        ("Supervised", "none", SINGLE, POISSON, ""),
    ],
)
def test_what_no_proof_covers_is_refused_whatever_the_document_says(
    label, norm, unit, first, text
):
  found = why(label, norm, unit, first)
  assert (text in found) if text else not found


def test_clip_norms_of_raw_statistics_have_no_guarantee():
  for by in cases.CLIP_BY:
    fields = dict(clip_by=by, **cases.CLIPPINGS["percentile_window"])
    answer = cases.ask(
        of("Reptile"), "group", PARTICIPANT, POISSON,
        clipping="percentile_window", **fields,
    )
    assert answer.training is None and not answer.protected
    assert "No formal guarantee" in answer.refusal.sentence
    assert "takes fixed clip norms" in why(
        "MAML, first order", "group", NOISY, POISSON,
        clipping="private_quantile", **cases.CLIPPINGS["private_quantile"],
    )


def test_bugs_are_not_taken_for_refusals(monkeypatch):
  def broken(*_, **__):
    raise ValueError("a bug")

  monkeypatch.setattr(cases.private, "make_meta_step", broken)
  with pytest.raises(ValueError, match="a bug") as e:
    why("Reptile", "group", PARTICIPANT)
  assert not isinstance(e.value, pages.REFUSALS)


def test_cells_group_what_is_alike():
  cell = page._grouped({"batch": "no (3)", "group": "sound", "none": "sound"})
  assert cell == "group, none: sound; batch: no (3)"
  assert page._grouped({"batch": "sound", "group": "sound"}) == "sound"


def test_refusals_that_differ_by_the_learner_s_name_share_a_number():
  notes = page._notes()
  first, second = (
      pages.Refusal(f"{name} cannot draw 3", True)
      for name in ("Reptile", "ProtoNet")
  )
  assert notes.verdict(first) == notes.verdict(second) == "no (1)"
  assert notes.verdict(pages.Refusal("another", False)) == "– (2)"
  assert notes.lines() == ["1. Reptile cannot draw 3", "2. (–) another"]
