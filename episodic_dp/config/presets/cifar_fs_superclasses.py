"""CIFAR-FS in three stages: superclass, class, image.

Paper: "Privacy Amplification for Episodic Training Methods" (Tombs, Kotevska
and Young, 2022). A step samples superclasses, then classes of each, then images
of these. Tasks are cut from the superclasses of a step, so way is the product
of a task's class stages: 5 superclasses of one class each are 5-way. The 20
training superclasses hold 2 to 5 classes, so a task takes at most 2 of each.
With 2 it takes whole superclasses, and the class has no guarantee.

One run gives guarantees for the superclass, the class and the image. With only
20 superclasses, a small epsilon for one of them needs much noise. This config
demonstrates the accounting; thousands of writers (glyphs.py) give a useful
epsilon. Validation and test tasks are of any classes.

Command:
  episodic-dp train --data_dir=DATA --workdir=DIR \\
      --config=cifar_fs_superclasses

Arguments after the colon: private (1), tasks (2, per step), superclasses (5, of
each task), classes (1, of each superclass), shot (1), query (1), width (16),
inner_steps (1), steps (250), noise_multiplier (4.0).
"""

import ml_collections

from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.data import cifar_fs


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """Return the config; `text` holds the arguments named above."""
  arg = defaults.arguments(
      text, private=True, tasks=2, superclasses=5, classes=1, shot=1, query=1,
      width=16, inner_steps=1, steps=250, noise_multiplier=4.0,
  )
  sizes = cifar_fs.superclass_sizes("train").values()
  return defaults.base(
      steps=arg.steps,
      delta=1e-5,
      plan=dict(stages=(
          f"FixedSize({arg.tasks * arg.superclasses})",
          f"FixedSize({arg.classes})",
          f"FixedSize({arg.shot + arg.query})",
      )),
      episode=dict(
          way=arg.superclasses * arg.classes, shot=arg.shot, query=arg.query,
          form="disjoint",
      ),
      hierarchy=defaults.hierarchy(plan.Hierarchy.from_sizes(
          [[cifar_fs.EXAMPLES] * n for n in sizes],
          levels=("superclass", "class", "image"),
      )),
      mechanism=defaults.mechanism(
          arg.private,
          clip_unit="episode",
          clip_norm=1.0,
          noise_multiplier=arg.noise_multiplier,
      ),
      data=dict(name="cifar_fs", options=dict(superclasses=True, seed=0)),
      model=dict(width=arg.width),
      learner=dict(inner_steps=arg.inner_steps),
      evaluation=dict(shot=arg.shot),
  )
