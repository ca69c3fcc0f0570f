"""What a learner does, in words, for tables and reports."""

import dataclasses

from episodic_dp.learners import anil
from episodic_dp.learners import fine_tuning
from episodic_dp.learners import learner as learner_lib
from episodic_dp.learners import maml
from episodic_dp.learners import meta_sgd
from episodic_dp.learners import protonet
from episodic_dp.learners import reptile
from episodic_dp.learners import ridge
from episodic_dp.learners import supervised


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
  """One learner.

  Attributes:
    name: "maml" and so on.
    paper: where it is from.
    adapts: what a support set changes.
    releases: what of a task is clipped and noised; "" where the learner is not
      meta-trained.
    inner_steps: gradient steps on the support set, which can be noised each
      (`adapt(..., inner_gradient=...)`); None for a closed form.
    transductive: whether one query's prediction depends on the other queries.
    because: why it is transductive or not.
  """

  name: str
  paper: str
  adapts: str
  releases: str
  inner_steps: int | None
  transductive: bool
  because: str


_GRADIENT = "the gradient of the query loss"
_Entries = dict[str, tuple[type[learner_lib.Learner], str, str, str]]
LEARNERS: _Entries = {
    "maml": (
        maml.MAML,
        "Finn et al., ICML 2017",
        "all weights, by gradient steps",
        _GRADIENT,
    ),
    "anil": (
        anil.ANIL,
        "Raghu et al., ICLR 2020",
        "the head, by gradient steps",
        _GRADIENT,
    ),
    "meta_sgd": (
        meta_sgd.MetaSGD,
        "Li et al., 2017",
        "all weights, by gradient steps with a learned rate each",
        _GRADIENT,
    ),
    "reptile": (
        reptile.Reptile,
        "Nichol et al., 2018",
        "all weights, by gradient steps",
        "the way back from the weights that the task trains to",
    ),
    "protonet": (
        protonet.ProtoNet,
        "Snell et al., NIPS 2017",
        "class means of embeddings, in closed form",
        _GRADIENT,
    ),
    "ridge": (
        ridge.RidgeHead,
        "Bertinetto et al., ICLR 2019",
        "a linear head on embeddings, in closed form",
        _GRADIENT,
    ),
    "fine_tuning": (
        fine_tuning.FineTuning,
        "Chen et al., ICLR 2019",
        "all weights or the head, by an optimiser's steps",
        "",
    ),
}
"""name -> class, paper, what adapts, what is released."""
# What learns from single examples: no meta-learner.
_WITHOUT_TASKS: _Entries = {
    "supervised": (
        supervised.Supervised,
        "Abadi et al., CCS 2016",
        "nothing",
        "the gradient of the loss of one example",
    ),
}


def describe(learner: learner_lib.Learner) -> Description:
  """The learner's description.

  Raises:
    ValueError: it is none of `LEARNERS`, nor `Supervised`.
  """
  known = LEARNERS | _WITHOUT_TASKS
  for name, (kind, paper, adapts, releases) in known.items():
    if type(learner) is kind:
      return Description(
          name=name,
          paper=paper,
          adapts=adapts,
          releases=releases,
          inner_steps=learner.inner_steps,
          transductive=learner.transductive,
          because=(
              "the network normalises by the statistics of the whole query set"
              if learner.transductive
              else "every query is judged alone"
          ),
      )
  raise ValueError(
      f"{type(learner).__name__} has no description: it is none of"
      f" {', '.join(known)}"
  )
