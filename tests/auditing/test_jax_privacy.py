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
  ours = bounds.measure_epsilon(
      present, absent, delta=delta, confidence=0.95, threshold=2.0
  )
  theirs = auditing.CanaryScoreAuditor(present, absent).epsilon_clopper_pearson(
      significance=0.05, delta=delta, one_sided=False,
      threshold_strategy=auditing.Explicit(2.0),
  )
  epsilon = theirs[0] if isinstance(theirs, tuple) else theirs
  assert ours.epsilon == pytest.approx(float(epsilon), rel=1e-6)
  assert ours.epsilon > 1
