"""Our bounds beside those of jax_privacy's auditor, on the same scores."""

import numpy as np
import pytest

from episodic_dp.auditing import bounds

auditing = pytest.importorskip(
    "jax_privacy.auditing",
    reason="jax_privacy is not installed: pip install -e '.[bench]'",
)


@pytest.mark.parametrize("delta", [0.0, 1e-2])
def test_many_runs_at_a_threshold(delta):
  rng = np.random.default_rng(0)
  present, absent = 1.5 + rng.standard_normal(5000), rng.standard_normal(5000)
  ours = bounds.lower_bound(
      present, absent, delta=delta, confidence=0.95, threshold=2.0
  )
  theirs = auditing.CanaryScoreAuditor(present, absent).epsilon_clopper_pearson(
      significance=0.05, delta=delta, one_sided=False,
      threshold_strategy=auditing.Explicit(2.0),
  )
  epsilon = theirs[0] if isinstance(theirs, tuple) else theirs
  assert ours.epsilon == pytest.approx(float(epsilon), rel=1e-6)
  assert ours.epsilon > 1


@pytest.mark.parametrize("delta", [0.0, 1e-4])
@pytest.mark.parametrize("guesses,correct", [(100, 90), (40, 40), (60, 30)])
def test_one_run(guesses, correct, delta):
  m = 300
  # Scores of which so many guesses are right, half of them on each side.
  right = correct // 2
  included = np.zeros(m, bool)
  included[:right] = True  # The rest of the top is out.
  included[m - guesses // 2 : m - right] = True
  scores = -np.arange(m, dtype=float)
  ours = bounds.one_run_bound(
      scores, included, delta=delta, guesses=guesses
  )
  assert ours.correct == correct
  theirs = auditing._epsilon_one_run(  # pylint: disable=protected-access
      0.0, m, guesses, correct, 0.05, delta
  )
  assert ours.epsilon == pytest.approx(theirs, abs=1e-4)
