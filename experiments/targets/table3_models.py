"""What the target `table3` trains, at each scale."""

import dataclasses
from typing import Any

KEYS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
  """What is trained once a key, private and not, and tested on some cells.

  Attributes:
    data: the data set, and its preset.
    way: classes of a task.
    shots: images of a class that test tasks have.
    participants: who train.
    tasks: expected of a private step.
    steps: of the private run.
    arguments: of the preset.
    overrides: of further fields.
    plain: arguments of the run without privacy that differ; None for none.
    keys: how many.
    kind: of the learner and its clipping, where it is not ours.
  """

  data: str
  way: int
  shots: tuple[int, ...]
  participants: int
  tasks: int
  steps: int
  arguments: dict[str, Any]
  overrides: dict[str, Any] = dataclasses.field(default_factory=dict)
  plain: dict[str, Any] | None = dataclasses.field(default_factory=dict)
  keys: int = KEYS
  kind: str = ""


_AVERAGED = {"optimizer.average": 0.9}
_MAML = {"learner.name": "maml", "optimizer.rate": 0.02}
_CLIPPING = {
    "quantile": {
        "mechanism.clip_norm": 15.0,
        "mechanism.clipping": "private_quantile",
        "mechanism.clip_quantile": 0.5,
        "mechanism.clip_rate": 0.2,
        "mechanism.count_noise": 20.0,
    },
    # The paper's: the 90th percentile of the last norms.
    "percentile": {
        "mechanism.clip_norm": 30.0,  # It only falls.
        "mechanism.clipping": "percentile_window",
        "mechanism.clip_percentile": 90.0,
        "mechanism.clip_window": 1600,
    },
}
_COLOURED = _AVERAGED | {
    "learner.metric_scale": 0.02,
    "augmentation.flip": True,
    "optimizer.final_rate": 0.001,
}
_OURS = {
    "cpu": (
        Model(
            data="omniglot", way=5, shots=(1,), participants=400_000,
            tasks=1600, steps=500, arguments=dict(width=16),
            overrides=_AVERAGED,
            plain=dict(participants=16_000, steps=2000),
        ),
        Model(
            data="omniglot", way=20, shots=(1,), participants=400_000,
            tasks=800, steps=250, arguments=dict(width=16),
            overrides=_AVERAGED,
            plain=dict(participants=16_000, steps=1000, rate=0.002),
        ),
        Model(
            data="cifar_fs", way=5, shots=(1, 5), participants=400_000,
            tasks=1600, steps=250, arguments=dict(width=32, query=2),
            overrides=_COLOURED,
            plain=dict(participants=16_000, steps=1500),
        ),
        Model(
            data="mini_imagenet", way=5, shots=(1, 5), participants=100_000,
            tasks=1600, steps=125, arguments=dict(width=24, query=2, size=42),
            overrides=_COLOURED,
            plain=dict(participants=16_000, steps=1000, rate=0.004),
        ),
    ),
    "full": (
        *(
            Model(
                data="omniglot", way=way, shots=(1,), participants=400_000,
                tasks=1600, steps=1000, arguments=dict(width=64, query=4),
                overrides=_AVERAGED,
                plain=dict(participants=400_000, rate=0.004, steps=1000),
            )
            for way in (5, 20)
        ),
        Model(
            data="cifar_fs", way=5, shots=(1, 5), participants=400_000,
            tasks=1600, steps=1000, arguments=dict(width=64, query=15),
            overrides=_COLOURED,
            plain=dict(participants=400_000, rate=0.004, steps=1000),
        ),
        Model(
            data="mini_imagenet", way=5, shots=(1, 5), participants=100_000,
            tasks=1600, steps=250, arguments=dict(width=64, query=15),
            overrides=_COLOURED,
            plain=dict(participants=100_000, rate=0.016, steps=250),
        ),
    ),
}  # fmt: skip
_THEIRS: dict[str, dict[str, Any]] = {
    "cpu": dict(tasks=800, steps=125, arguments=dict(width=8, inner_steps=1)),
    "full": dict(
        tasks=1600, steps=250, arguments=dict(width=64, inner_steps=5)
    ),
}


def models(scale: str) -> list[Model]:
  """Ours, and the paper's learner."""
  theirs = [
      Model(
          data="omniglot", way=5, shots=(1,), participants=400_000,
          overrides=_MAML | clipping, plain=None,
          keys=1 if scale == "cpu" else KEYS, kind=name, **_THEIRS[scale],
      )
      for name, clipping in _CLIPPING.items()
  ]  # fmt: skip
  return [*_OURS[scale], *theirs]
