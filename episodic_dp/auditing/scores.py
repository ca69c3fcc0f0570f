"""How likely a run had the record, for an attacker who knows all the rest.

Formal statement
----------------
A score is a function of what a run released (`runs.Releases`) and of constants
that differential privacy lets an attacker know: both data sets, the plan, the
mechanism, the public sizes of the side that is scored. So it is post-processing
of the released vectors, and what is private of these is private of it. A score
need not be exact: a wrong law of the outputs makes a weaker attack, never a
bound that is too large.

For the canaries of `canaries.worst_case` the sum of a step is one of a few
numbers m_o on a line, each with a known probability, plus noise: P = sum_o w_o
N(m_o, 1) with the record and Q = sum_o v_o N(m_o, 1) without it, in standard
deviations of the noise. Steps are drawn independently, so the best test of a
run (Neyman and Pearson) is of the sum over the steps of

    log sum_o w_o exp(m_o x - m_o^2 / 2) - log sum_o v_o exp(m_o x - m_o^2 / 2),

for a record that is alone, drawn at rate q and at distance d: log(1 - q +
q exp(d x - d^2 / 2)). In a pass of `RandomAllocation` one of the steps holds
the record: the mean over the steps takes the place of the sum, under the
logarithm.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from episodic_dp import plan as plan_lib


class Law(NamedTuple):
  """Where the sum of a step lies, in clip norms, before noise.

  Attributes:
    present: float64[outcomes], probabilities with the record.
    absent: float64[outcomes], without it.
    sums: float64[outcomes], the sum of clipped gradients along the line.
    units: float64[outcomes], how many clip units of norm C are in it.
  """

  present: np.ndarray
  absent: np.ndarray
  sums: np.ndarray
  units: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
  """The log-likelihood ratio of a run's releases.

  Attributes:
    law: of one step, or of the step of a pass that draws the record's primary
      unit.
    mechanism: what is released.
    pass_steps: the steps of one pass, or 0.
    direction: float64[coordinates] of length 1, the line in the space of sums;
      None where coordinates are lines themselves.
    offset: float64[coordinates], a sum that is taken off first, or None.
  """

  law: Law
  mechanism: plan_lib.Mechanism
  pass_steps: int = 0
  direction: np.ndarray | None = None
  offset: np.ndarray | None = None

  def __call__(self, released: Any, count: float) -> np.ndarray:
    """float64[runs, steps], cumulative: column t is the score of t + 1 steps.

    Args:
      released: `runs.Releases` of one coordinate.
      count: the public number that the side's sums are divided by
        (`clip_units`).
    """
    return self.each(released, count)[..., 0]

  def each(self, released: Any, count: float) -> np.ndarray:
    """float64[runs, steps, lines], as above, for every line."""
    if self.direction is not None:
      means = np.asarray(released.means, np.float64)
      if self.offset is not None:
        means = means - self.offset / count
      released = released._replace(means=(means @ self.direction)[..., None])
    return self._of(on_line(released, self.mechanism, count))

  def simulated(
      self, rng: np.random.Generator, runs: int, steps: int, *, present: bool
  ) -> np.ndarray:
    """float64[runs, steps], scores of runs that follow the law, cumulative.

    What an attacker expects before seeing any run; for choosing a threshold.
    """
    chances = self.law.present if present else self.law.absent
    places = positions(self.law, self.mechanism)
    shape = (runs, steps)
    if not self.pass_steps:
      sums = places[rng.choice(places.size, shape, p=chances)]
    else:
      passes = (runs, -(-steps // self.pass_steps))
      sums = np.zeros((*passes, self.pass_steps))
      when = rng.integers(self.pass_steps, size=(*passes, 1))
      drawn = places[rng.choice(places.size, (*passes, 1), p=chances)]
      np.put_along_axis(sums, when, drawn, axis=2)
      sums = sums.reshape(runs, -1)[:, :steps]
    return self._of((sums + rng.standard_normal(shape))[..., None])[..., 0]

  def _of(self, x: np.ndarray) -> np.ndarray:
    """Cumulative scores of float64[runs, steps, lines] in units of noise."""
    places = positions(self.law, self.mechanism)
    exponents = x[..., None] * places - places**2 / 2
    if self.pass_steps:
      return _of_passes(exponents, self.law, self.pass_steps)
    with_record = special.logsumexp(exponents, axis=-1, b=self.law.present)
    without = special.logsumexp(exponents, axis=-1, b=self.law.absent)
    return np.cumsum(with_record - without, axis=1)


def clip_units(release: plan_lib.Release) -> float:
  """What `private.make_meta_step` divides its sum by, a public number."""
  plan = release.plan
  if plan.episode is None:
    return plan_lib.examples_per_step(release.hierarchy, plan)
  tasks = plan_lib.tasks_per_step(release.hierarchy, plan)
  if release.mechanism.noisy_inner_steps:
    return tasks * plan.episode.way * plan.episode.query
  return tasks


def on_line(
    released: Any, mechanism: plan_lib.Mechanism, count: float
) -> np.ndarray:
  """float64[runs, steps, coordinates], the sums in units of their noise.

  With clipping="private_quantile" the noised count is read out of two clip
  norms, and added along the direction (gradient, count) in which a clip unit of
  norm C moves the pair: that is the projection on a unit vector, of noise 1.
  """
  z, noise = mechanism.noise_multiplier, mechanism.gradient_noise_multiplier
  means = np.asarray(released.means, np.float64)
  if mechanism.clipping != "private_quantile":
    return means * (count / (noise * mechanism.clip_norm))
  bounds = np.asarray(released.clip_norms, np.float64)
  gradient = means * (count / noise) / bounds[:, :-1]
  rate, sigma = mechanism.clip_rate, mechanism.count_noise
  assert rate is not None and sigma is not None  # Checked by the mechanism.
  assert mechanism.clip_quantile is not None
  moved = np.log(bounds[:, 1:] / bounds[:, :-1])
  share = mechanism.clip_quantile - moved / rate
  counted = (share - 0.5) * count / sigma
  return z * (gradient / noise - counted / (2 * sigma))


def positions(law: Law, mechanism: plan_lib.Mechanism) -> np.ndarray:
  """float64[outcomes], where `on_line` would lie without noise."""
  z, noise = mechanism.noise_multiplier, mechanism.gradient_noise_multiplier
  if mechanism.clipping != "private_quantile":
    return law.sums / noise
  sigma = mechanism.count_noise
  assert sigma is not None  # Checked by the mechanism.
  return z * (law.sums / noise**2 + law.units / (4 * sigma**2))


def _of_passes(
    exponents: np.ndarray, law: Law, pass_steps: int
) -> np.ndarray:
  """Cumulative scores at whole passes; between them those of the last one."""
  runs, steps, lines, _ = exponents.shape
  result = np.zeros((runs, steps, lines))
  total = np.zeros((runs, lines))
  for start in range(0, steps - pass_steps + 1, pass_steps):
    part = exponents[:, start : start + pass_steps]
    total = total + (
        special.logsumexp(part, axis=(1, 3), b=law.present)
        - special.logsumexp(part, axis=(1, 3), b=law.absent)
    )
    result[:, start + pass_steps - 1 :] = total[:, None]
  return result
