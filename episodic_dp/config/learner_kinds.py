"""Which learners there are, and what of a config goes with which.

Facts and checks alone, without JAX: `learners.make_learner` builds them.
"""

import dataclasses

from episodic_dp import plan as plan_lib
from episodic_dp.config import sections

SUPERVISED = "supervised"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
  """What is known of a learner.

  Attributes:
    switches: the pieces of MAML++ that it takes.
    regression: whether it also learns numbers (way 1).
    headless: whether its network ends in features: the rest is a closed form.
  """

  switches: tuple[str, ...] = ()
  regression: bool = False
  headless: bool = False


_SWITCHES = ("learned_rates", "per_step_norm", "multi_step_loss")
KINDS = {
    "maml": Kind(switches=_SWITCHES, regression=True),
    "anil": Kind(switches=_SWITCHES, regression=True),
    "meta_sgd": Kind(
        switches=("per_step_norm", "multi_step_loss"), regression=True
    ),
    "reptile": Kind(regression=True),
    "protonet": Kind(headless=True),
    "ridge": Kind(headless=True),
    SUPERVISED: Kind(),
}
HEADLESS = tuple(name for name, kind in KINDS.items() if kind.headless)


def check_name(learner: sections.Learner) -> None:
  """PlanError for a learner that nothing knows."""
  if learner.name not in KINDS:
    raise plan_lib.PlanError(
        f"learner.name={learner.name!r} must be one of {sorted(KINDS)}"
    )


def check(
    learner: sections.Learner, episode: plan_lib.Episode | None, way: int
) -> None:
  """Refuses a learner that does not go with its switches or its episode.

  Args:
    learner: the section of the config.
    episode: of the plan; None for examples without tasks.
    way: the classes of a task; 1 is regression.

  Raises:
    PlanError: one sentence with the remedy.
  """
  check_name(learner)
  if episode is None and learner.name != SUPERVISED:
    raise plan_lib.PlanError(
        f"config.episode is missing and learner.name={learner.name!r} learns"
        " from tasks: set way, shot and query, or learner.name=supervised"
        " (episodic_dp/config/presets/glyphs_supervised.py shows the rest)"
    )
  if episode is not None and learner.name == SUPERVISED:
    raise plan_lib.PlanError(
        "learner.name='supervised' learns single examples and config.episode"
        " asks for tasks: use another learner, or take a config without tasks,"
        " such as --config=glyphs_supervised"
    )
  kind = KINDS[learner.name]
  for switch in _SWITCHES:
    value = getattr(learner, switch)
    if value and switch not in kind.switches:
      raise plan_lib.PlanError(
          f"learner.{switch}={value} is not read by"
          f" learner.name={learner.name!r}: leave it out"
      )
  if way == 1 and not kind.regression:
    raise plan_lib.PlanError(
        f"learner.name={learner.name!r} tells classes apart, and way 1 is"
        " regression: use maml"
    )
