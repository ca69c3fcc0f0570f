"""docs/choosing.md: its tables say what its text says of them."""

import pytest

from experiments.evidence import choosing

TEXT = choosing.FILE.read_text(encoding="utf-8")


def table(name):
  """The rows of a table of the page."""
  body = TEXT.split(f"<!-- choosing: {name} -->\n\n")[1].split("\n\n")[0]
  rows = [line.strip("| ").split(" | ") for line in body.splitlines()[2:]]
  return [[float(cell) for cell in row] for row in rows]


def test_accuracies_that_differ_are_in_the_order_of_the_score():
  rows = table("accuracies")
  told_apart = 0
  for *_, score, accuracy, half in rows:
    for *_, other_score, other, other_half in rows:
      if accuracy - other > half + other_half:
        assert score > other_score
        told_apart += 1
  assert told_apart == 5  # Of six pairs: all but 400 and 800 tasks a step.


def test_the_guideline_is_at_the_same_epsilon_and_tasks():
  for row in table("guideline"):
    n, z, tasks, steps, moments, epsilon, percentile, clipped, own, t, _, \
        spent, score = row  # fmt: skip
    assert tasks == pytest.approx(n / 16 / z, rel=0.01)
    assert 0.98 * epsilon < spent <= epsilon < moments
    assert own * t <= 1.01 * tasks * steps
    assert score >= 0.95 * clipped  # Sizes of steps are tried a few.
    assert clipped > percentile


@pytest.mark.slow  # Compiles a network.
def test_the_tables_are_as_they_are_computed():
  config, found = choosing.measured()
  for stored, row in zip(
      table("accuracies"), choosing.accuracies(config, found).rows, strict=True
  ):
    assert stored == pytest.approx(row, rel=0.1)
  for stored, row in zip(
      table("guideline"), choosing.guideline(config, found).rows, strict=True
  ):
    # What the accountant says; then what public gradients do.
    assert stored[:6] == pytest.approx(row[:6], rel=1e-3)
    assert (*stored[6:8], stored[-1]) == pytest.approx(
        (*row[6:8], row[-1]), rel=0.1
    )
