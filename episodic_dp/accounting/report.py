"""The guarantee of one level, and its assumptions."""

from collections.abc import Iterable, Mapping
import dataclasses
import decimal
import math
from typing import Any, get_args, Literal

from episodic_dp import _validate
from episodic_dp import plain
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import tradeoff

Relation = Literal["add-or-remove", "replace-one"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)

SEEDED = (
    "Reproducible; no guarantee against anyone who knows the seed (the"
    " configuration fixes private_seed: leave it out for a secret key)."
)
# Stated for a run that starts with the weights of another network.
STARTED = (
    "The run starts from given weights, which are assumed to be public. If they"
    " were made from the private data, add their cost (episodic-dp account"
    " --ledger)."
)
# Stated for a model that is adapted to examples.
ONE_ADAPTATION = (
    "The guarantee covers one adaptation: another one to examples of the same"
    " units is another release, and the costs add up (episodic-dp account"
    " --ledger)."
)
ADAPTED = (
    "The names of the classes and their number are public; which unit has"
    " examples of which class is not, and no counts are released.",
    "The network is public, or private by the statement of its training; what"
    " that training cost the same units comes on top.",
    "The network embeds each example by itself: its statistics and the centre"
    " of the embeddings are fixed and come from public data.",
    "What a sentence here calls the gradient of a unit is its contribution to"
    " the prototypes: the class means of its embeddings, clipped together. A"
    " prototype is the direction of a class in the noised sum.",
)
# Stated for a run on features of images.
EMBEDDED = (
    "The features are those of a given network (a backbone), which is assumed"
    " to be public and not to have seen the private people. If it was made from"
    " the private data, add its cost (episodic-dp account --ledger)."
)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Guarantee:
  """(epsilon, delta)-differential privacy of one level of a hierarchy.

  Attributes:
    epsilon: the larger of the two directions; infinity for no guarantee.
    delta: as requested; errors of the sampler are included.
    level: the privacy unit.
    neighbours: the relation, "add or remove one LEVEL" or "replace one
      LEVEL".
    direction: the direction with the larger epsilon (or delta, for a given
      epsilon): "remove" for the divergence of the run with the unit from the
      run without it, "add" for the reverse; "both" if they are equal.
    accountant: the accountant that composed the steps.
    assumptions: sentences that the guarantee depends on.
    steps: the number of steps of all runs.
    inclusion_rate: eta, the largest probability that a step samples one unit.
    epsilons: epsilon of each direction, at delta.
    caveat: a limit of the guarantee, to be shown wherever it is printed, or "".
    costs: the privacy curve of the runs, for `attack`.
  """

  epsilon: float
  delta: float
  level: str
  neighbours: str
  direction: str
  accountant: str
  assumptions: tuple[str, ...]
  steps: int
  inclusion_rate: float
  epsilons: dict[str, float]
  caveat: str = ""
  costs: tradeoff.Costs | None = dataclasses.field(
      default=None, compare=False, metadata={"plain": False}
  )

  def of_run(
      self,
      *,
      seeded: bool = False,
      started: bool = False,
      adapted: bool = False,
      embedded: bool = False,
  ) -> "Guarantee":
    """Return the guarantee with the caveats of a run, which come first.

    Args:
      seeded: whether its private seed is fixed.
      started: whether it starts with given weights.
      adapted: whether it adapts a model to examples.
      embedded: whether its examples are features of a backbone.
    """
    said: list[str] = []
    assumed: tuple[str, ...] = ()
    if seeded:
      said.append(SEEDED)
    if started:
      said.append(STARTED)
    if adapted:
      said.append(ONE_ADAPTATION)
      assumed = ADAPTED
    if embedded:
      said.append(EMBEDDED)
    return dataclasses.replace(
        self,
        caveat=" ".join([*said, self.caveat]).strip(),
        assumptions=(*said, *assumed, *self.assumptions),
    )

  def attack(self, false_positive_rate: float = 0.01) -> tradeoff.Attack:
    """Compute what an attacker gains at most, from the same privacy curve.

    Both numbers are upper bounds, as epsilon is; see `accounting.tradeoff`.

    Args:
      false_positive_rate: in (0, 1).

    Raises:
      PlanError: the rate is out of range, or the guarantee was not computed by
        the accountant.

    Examples:
      >>> from episodic_dp import accounting, plan
      >>> r = plan.Release(
      ...     plan.Hierarchy.regular((1000,), levels=("user",)),
      ...     plan.SamplingPlan((plan.Poisson(0.05),)),
      ...     plan.Mechanism(clip_unit="user", noise_multiplier=2.0),
      ... )
      >>> g = accounting.guarantee(r, steps=100, delta=1e-5, level="user")
      >>> f"{g.attack(false_positive_rate=0.01).true_positive_rate:.3f}"
      '0.020'
    """
    if self.costs is None:
      raise plan_lib.PlanError(
          "this guarantee has no privacy curve: compute it by"
          " accounting.guarantee"
      )
    return tradeoff.attack(
        self.costs, self.delta, false_positive_rate,
        neighbours=self.neighbours, caveat=self.caveat,
        assumptions=self.assumptions,
    )

  def as_dict(self) -> dict[str, Any]:
    """Return plain data for JSON; an infinite epsilon is the text "inf"."""
    return plain.to_plain(self)

  def __repr__(self) -> str:
    return f"Guarantee({self})"

  def __str__(self) -> str:
    text = f"{self.level}: no formal guarantee (epsilon is infinite)"
    if math.isfinite(self.epsilon):
      text = (
          f"{self.level}: epsilon {rounded_up(self.epsilon)} at delta"
          f" {rounded_delta(self.delta)} ({self.neighbours};"
          f" steps={self.steps}; {self.direction} direction;"
          f" {self.accountant})"
      )
    return ". ".join(filter(None, (text, self.caveat)))


def is_replaced(neighbours: Relation) -> bool:
  """Return whether neighbours differ in a unit's data, not in its presence.

  Raises:
    PlanError: there is no such relation.
  """
  _validate.one_of("neighbours", neighbours, RELATIONS)
  return neighbours == "replace-one"


def rounded_up(epsilon: float) -> str:
  """Format epsilon with four digits, rounded up."""
  if math.isinf(epsilon):
    return "inf"
  return _rounded(epsilon, decimal.ROUND_CEILING)


def rounded_down(lower: float) -> str:
  """Format a lower bound on epsilon with four digits, rounded down."""
  return _rounded(lower, decimal.ROUND_FLOOR)


def rounded_delta(delta: float) -> str:
  """Format delta with six digits, rounded up."""
  context = decimal.Context(prec=6, rounding=decimal.ROUND_CEILING)
  return f"{float(context.create_decimal(repr(float(delta)))):g}"


def between(lower: float, epsilon: float) -> str:
  """Format the interval of epsilon, with four digits.

  It is only the upper bound if no lower bound is known, or if it is infinite.
  """
  if not 0 < lower <= epsilon < math.inf:
    return rounded_up(epsilon)
  return f"between {rounded_down(lower)} and {rounded_up(epsilon)}"


def _rounded(value: float, rounding: str) -> str:
  context = decimal.Context(prec=4, rounding=rounding)
  digits = context.create_decimal(repr(float(value)))
  return f"{digits:.3e}" if digits >= 1_000_000 else f"{digits:f}"


# Assumptions of every guarantee; `assumptions` adds those of a plan.
ASSUMED_THROUGHOUT = (
    "Every step samples anew, independently of all others (no epochs).",
    "The noised sum is divided by public constants only.",
    "The keys of sampling and noise stay secret.",
    "Samples and noise come from the threefry generator and a key of 64 bits;"
    " nobody can try all 2^64 keys.",
    "Noise is added exactly once, whatever the number of devices.",
    "Within every unit the order of the sampled children is uniformly random.",
    "Checkpoints and hyperparameters are chosen on public data; a choice on"
    " private data costs additional epsilon.",
    "Sizes of the hierarchy are public, and so are the plan, the mechanism and"
    " which units are for training.",
    "Sums and noise are floating-point numbers; their distance from real-valued"
    " Gaussian noise is not accounted for.",
    "Nothing else about the private data is released: no training loss or"
    " accuracy, no norm statistics, and the number of steps does not depend on"
    " them.",
)
EMPTY_UNSEEN = (
    "A gradient is a function of the examples sampled in its clip unit, not of"
    " units in it that were sampled without an example."
)
REPLACED_IN_SAMPLE = (
    "Where a stage is FixedSize, a removed unit is replaced in the sample: the"
    " sum moves by up to twice the clip norm for every clip unit that it holds."
)
NO_NOISE = "No noise is added: nothing is guaranteed (epsilon = inf)."
UNITS_STAY = (
    "The set of units is public and stays when a unit is emptied. (No list of"
    " units was given, so the set consists of those that hold a record.)"
)
CLASSES_STAY = (
    "The list of classes, in which the label of an example is a place, is"
    " public and stays when a class is emptied. (No list of units was given, so"
    " it consists of the classes that hold a record.)"
)
UN_NOISED_CLIPPING = (
    "No formal guarantee (un-noised percentile clipping): the clip norm is a"
    " percentile of raw gradient norms, which no noise covers, so no epsilon"
    " holds however large the noise is; use clipping='private_quantile' or"
    " clipping='fixed'."
)


def assumptions(
    release: plan_lib.Release,
    level: str,
    *,
    replaced: bool = False,
) -> tuple[str, ...]:
  """List the assumptions of a level's guarantee, as sentences.

  Args:
    release: the release of a step.
    level: the privacy unit.
    replaced: whether neighbours differ in a unit's data, not in its presence.
  """
  hierarchy, plan = release.hierarchy, release.plan
  k, stages = hierarchy.level_index(level), plan.stages
  sampling, *others = ASSUMED_THROUGHOUT
  if plan.pass_steps is not None:
    sampling = (
        f"Every pass of {plan.pass_steps} steps uses each"
        f" {hierarchy.levels[0]} in one of them, chosen uniformly and"
        " independently; all samples inside it are new."
    )
  result = [sampling, *others, *_of_mechanism(release)]
  if replaced:
    result.append(
        f"Neighbours differ in the data of one {level}; both have the sizes"
        " given."
    )
  else:
    result.append(
        f"Neighbours differ by one {level}; the larger of the two data sets has"
        " the sizes given."
    )
  if hierarchy.units_from_records and k > 0:
    result.append(UNITS_STAY)
  elif hierarchy.units_from_records and hierarchy.depth == 1:
    result.append(CLASSES_STAY)  # Single examples, learned by their classes.
  if any(isinstance(s, plan_lib.FixedSize) for s in stages):
    result.append(REPLACED_IN_SAMPLE)
  below = stages[k + 1 :]
  if k > release.clip_level and any(stage.random_count for stage in below):
    result.append(EMPTY_UNSEEN)
  for tasks in plan.repeats:
    result.append(
        f"Each of the {tasks} tasks of a step samples anew; epsilon accounts"
        f" for one {level} in several of them."
    )
  if release.sample_level:
    result.append(
        f"Each of the {release.mechanism.inner_steps} inner steps of a task"
        " releases a clipped and noised sum over its support examples; outer"
        " gradients are first-order; no layer mixes examples (batch"
        " normalisation does); both clip norms are fixed."
    )
  result.append(caveat(hierarchy, level))
  return tuple(filter(None, result))


def _of_mechanism(release: plan_lib.Release) -> list[str]:
  """State the noise, the clip norm, and the inputs of a clipped gradient."""
  mechanism = release.mechanism
  result = []
  if mechanism.noise_multiplier == 0:
    result.append(NO_NOISE)
  if mechanism.clipping == "percentile_window":
    result.append(UN_NOISED_CLIPPING)
  elif mechanism.clipping == "private_quantile":
    result.append(
        "The clip norm of a step is a function of the noised counts of earlier"
        " steps and of public constants; the noise on the gradients"
        f" ({mechanism.gradient_noise_multiplier:.6g} clip norms) and the"
        " separate noise on the counts together cost as much as the noise"
        f" multiplier {mechanism.noise_multiplier:g} alone."
    )
  unit = mechanism.clip_unit
  if unit == plan_lib.EPISODE:
    unit = "task (a group of sampled classes)"
  depends = "depends on no other clip unit"
  if release.sample_level:
    depends = (
        "depends on other examples only through the noisy inner steps of its"
        " task"
    )
  result.append(
      f"Each clipped gradient belongs to one {unit}, {depends}, and counts as"
      " zero where it is not finite; no statistics are carried between clip"
      " units."
  )
  return result


def refuse_un_noised(mechanism: plan_lib.Mechanism) -> None:
  """Raise UnsoundPlanError if raw norms set the clip norm."""
  if mechanism.clipping == "percentile_window":
    raise plan_lib.UnsoundPlanError(UN_NOISED_CLIPPING.rstrip("."))


def caveats(release: plan_lib.Release, level: str) -> tuple[str, ...]:
  """List the caveats to show with every epsilon, the most severe first."""
  found = [caveat(release.hierarchy, level)]
  if release.mechanism.clipping == "percentile_window":
    found.insert(0, UN_NOISED_CLIPPING)
  return tuple(filter(None, found))


def stated_caveats(
    guarantees: Iterable[Mapping[str, Any]],
) -> list[str]:
  """List the caveats of guarantees as plain data, each once."""
  return list(dict.fromkeys(g["caveat"] for g in guarantees if g["caveat"]))


def large_delta(
    hierarchy: plan_lib.Hierarchy, level: str, delta: float
) -> str:
  """Warn of a delta that publishing one random unit satisfies, or return ""."""
  units = hierarchy.num_units(hierarchy.level_index(level))
  if delta * units < 1:
    return ""
  return (
      f"Delta {delta:g} is at least 1 / {units}, one of all units of level"
      f" '{level}': publishing the data of a random one would satisfy it. Take"
      " a much smaller delta."
  )


def usual_delta(units: int) -> float:
  """Return the largest power of ten below 1 / (10 n), for n units."""
  # 10**digits is above 10 n.
  return float(f"1e-{len(str(10 * units))}")


def caveat(hierarchy: plan_lib.Hierarchy, level: str) -> str:
  """State the limits of a guarantee for synthetic participants."""
  if not hierarchy.copies:
    return ""
  k, (primary, *below) = hierarchy.level_index(level), hierarchy.levels
  most = hierarchy.most_copies or (1, *(0 for _ in below))
  if k and most[k] > 1:
    return (
        f"The guarantee is for one {level} in all units of level '{primary}'"
        f" that hold it, at most {most[k]}; who holds what is public."
    )
  if k:  # In one place only.
    return ""
  shared = [
      f"no {name} as a whole: one {name} may be in {count} of them"
      for name, count in zip(below, most[1:], strict=True)
      if count > 1
  ]
  if most[-1] == 1 and shared:
    return (
        f"The guarantee is for one {level} with its records, and for"
        f" {shared[0]}."
    )
  return (
      f"The guarantee is for one {level} and says nothing about the records"
      f" below it, which recur under other units of level '{level}'."
  )
