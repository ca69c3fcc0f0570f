"""The level of the classes of an episode, and the draws that it allows."""

import pytest

from episodic_dp import plan

F = plan.FixedSize
LEVELS = ("diagnosis", "patient", "image")


def checked(stages, sizes=(6, 8, 3), levels=LEVELS, **episode):
  hierarchy = plan.Hierarchy.regular(sizes, levels=levels)
  values = dict(way=2, shot=1, query=1, form="disjoint") | episode
  p = plan.SamplingPlan(stages, plan.Episode(**values))
  plan.validate(hierarchy, p)
  return plan.class_level(hierarchy, p), plan.tasks_per_step(hierarchy, p)


def test_the_class_is_the_level_above_the_examples_unless_it_is_named():
  assert checked((F(1), F(4), F(2))) == (1, 2)
  assert checked((F(4), F(2), F(1)), classes="diagnosis") == (0, 2)
  assert checked((F(4), F(2), F(1)), shot=1, classes="diagnosis") == (0, 2)
  assert checked(
      (F(3), F(2), F(2), F(1)),
      sizes=(5, 6, 4, 3),
      levels=("ward", *LEVELS),
      form="unit",
      classes="diagnosis",
  ) == (1, 3)


@pytest.mark.parametrize(
    "stages, episode, message",
    [
        (
            (F(2), F(2), F(1)), dict(classes="ward"),
            "unknown level 'ward': the hierarchy has",
        ),
        (
            (F(2), F(2), F(1)), dict(classes="image"),
            "classes='image' are the examples themselves: name one of",
        ),
        (
            (F(2), F(2), F(1)), dict(classes="diagnosis", form="unit"),
            "use form='independent' .* or classes='patient'",
        ),
        (
            (F(2), F(3), F(1)), dict(classes="diagnosis"),
            r"the stages below 'diagnosis' draw 3 x 1 of level 'image'",
        ),
        (
            (F(2), F(2), F(2)), dict(classes="diagnosis", shot=1, query=3),
            "make shot and query multiples of 2, or draw FixedSize",
        ),
        (
            (F(2), F(9), F(1)), dict(classes="diagnosis", shot=4, query=5),
            r"every diagnosis has 8 of level 'patient', and stage"
            r" FixedSize\(9\) draws 9 \(shot 4 \+ query 5\)",
        ),
    ],
)
def test_errors_name_the_level_and_the_remedy(stages, episode, message):
  with pytest.raises(plan.PlanError, match=message):
    checked(stages, **episode)
