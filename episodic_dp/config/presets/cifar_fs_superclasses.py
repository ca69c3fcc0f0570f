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

from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.data import cifar_fs
from episodic_dp.run import Data
from episodic_dp.run import Run


def cifar_fs_superclasses(
    *,
    private: bool = True,
    tasks: plain.Count = 2,
    superclasses: plain.Count = 5,
    classes: plain.Count = 1,
    shot: plain.Count = 1,
    query: plain.Count = 1,
    width: plain.Count = 16,
    inner_steps: plain.Count = 1,
    steps: plain.Count = 250,
    noise_multiplier: plain.NotNegative = 4.0,
) -> Run:
  """Return the run; the module describes it and its arguments."""
  sizes = cifar_fs.superclass_sizes().values()
  return Run(
      steps=steps,
      delta=1e-5,
      plan=plan.SamplingPlan(
          (
              plan.FixedSize(tasks * superclasses), plan.FixedSize(classes),
              plan.FixedSize(shot + query),
          ),
          plan.Episode(
              way=superclasses * classes, shot=shot, query=query,
              form="disjoint",
          ),
      ),
      hierarchy=plan.Hierarchy.from_sizes(
          [[cifar_fs.EXAMPLES] * n for n in sizes],
          levels=("superclass", "class", "image"),
      ),
      mechanism=defaults.mechanism(
          private,
          clip_unit="episode",
          clip_norm=1.0,
          noise_multiplier=noise_multiplier,
      ),
      data=Data(name="cifar_fs", options=dict(superclasses=True, seed=0)),
      model=options.Network(width=width),
      learner=options.LearnerOptions(inner_steps=inner_steps),
      evaluation=options.Evaluation(shot=shot),
  )
