"""Plans as text and plain data, and back."""

import pytest

from episodic_dp import plan


@pytest.mark.parametrize(
    "text,stage",
    [
        ("FixedSize(5)", plan.FixedSize(5)),
        (" FixedSize( n = 5 ) ", plan.FixedSize(5)),
        ("Poisson(0.004)", plan.Poisson(0.004)),
        ("Poisson(p=1)", plan.Poisson(1.0)),
        ("Poisson(8/30)", plan.Poisson(8 / 30)),
        ("Poisson(1e-3)", plan.Poisson(0.001)),
        ("All()", plan.All()),
        ("RandomAllocation(250)", plan.RandomAllocation(250)),
        ("RandomAllocation(steps=1)", plan.RandomAllocation(1)),
    ],
)
def test_stages(text, stage):
  assert plan.parse_stage(text) == stage


@pytest.mark.parametrize(
    "text",
    [
        "", "All", "All(1)", "FixedSize", "FixedSize()", "FixedSize(2.5)",
        "FixedSize(1, 2)", "FixedSize(p=1)", "FixedSize(True)", "Poisson('1')",
        "Poisson(1/0)", "Poisson(p)", "Poisson(*[1])", "Poisson(**{'p': 1})",
        "plan.All()", "__import__('os').getcwd()", "Poisson(abs(1))",
        "All(); All()", "(" * 90, "Stage(1)", 5, None, "Poisson(2**0.5)",
        "RandomAllocation(1/4)", "RandomAllocation(n=4)", "RandomAllocation()",
        "x" * 1000, "Poisson(1e400)", "Poisson(0.1 if 1 else 2)",
    ],
)
def test_stages_that_are_not_understood(text):
  with pytest.raises(plan.PlanError):
    plan.parse_stage(text)


def test_ranges_are_those_of_the_stages():
  with pytest.raises(plan.PlanError, match="FixedSize\\(n\\)=-3"):
    plan.parse_stage("FixedSize(-3)")
  with pytest.raises(plan.PlanError, match="p must lie"):
    plan.parse_stage("Poisson(1.5)")


@pytest.mark.parametrize(
    "stage,text",
    [
        (plan.FixedSize(5), "FixedSize(5)"),
        (plan.Poisson(1 / 3), f"Poisson({1 / 3!r})"),
        (plan.Poisson(5e-324), "Poisson(5e-324)"),
        (plan.Poisson(1), "Poisson(1.0)"),
        (plan.All(), "All()"),
    ],
)
def test_stage_text_is_read_back(stage, text):
  assert plan.stage_text(stage) == text
  assert plan.parse_stage(text) == stage
