# ---
# jupyter:
#   jupytext:
#     cell_markers: '"""'
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
"""
# The ε of your episodic training, in ten minutes

[![Open in Colab][badge]][colab]

[badge]: https://colab.research.google.com/assets/colab-badge.svg
[colab]: https://colab.research.google.com/github

Few-shot models train in *episodes*: draw some people, then some classes of each
person, then some examples of each class. Differential privacy bounds what the
trained model can tell about any one of them. The bound is a number, ε, and it
follows from three things alone: **what a step draws, what is clipped, and how
much noise is added**. No data and no training are needed to know it.

This notebook describes a training loop of yours, computes its ε for people, for
classes and for single examples, shows what changes it, and ends with the
sentence for your paper. Nothing here needs a GPU; all of it takes a few
seconds.

The next cell installs the library where it is missing. (Colab asks for the
address of the repository: the one that you opened this notebook from.)
"""

# %%
import os
import pathlib
import subprocess
import sys

SCALE = os.environ.get("EPISODIC_DP_SCALE", "cpu")  # "smoke": seconds, a try.
here = pathlib.Path.cwd()
ROOT = next(
    (p for p in (here, *here.parents) if (p / "experiments").is_dir()),
    here / "episodic_dp_source",
)
if not ROOT.is_dir():  # Such as on Colab.
  address = input("Address of the repository that has this notebook: ")
  subprocess.run(
      f"git clone -q --depth=1 {address} {ROOT} && pip install {ROOT}",
      shell=True, check=True,
  )
sys.path.insert(0, os.fspath(ROOT))

# %% [markdown]
"""
## 1. Say what a step draws

Say that 2000 people each showed 20 gestures to a sensor, 15 times each. That is
the **hierarchy**: person → gesture → recording. In every step your loop

1. takes each person with probability 0.02, by a coin of their own (`Poisson`),
2. takes 5 of that person's 20 gestures (`FixedSize`): a 5-way task,
3. takes 6 of the 15 recordings of each: 1 to learn from, 5 to be tested on.

That is the **plan**. The **mechanism** says what one clipped gradient belongs
to, here a person, and how much noise the sum of clipped gradients gets: the
noise multiplier is the noise's standard deviation over the clip norm.
"""

# %%
import math

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import report
from episodic_dp.output import tables
from episodic_dp.plan import stages as stages_lib

hierarchy = plan.Hierarchy.regular(
    (2000, 20, 15), levels=("person", "gesture", "recording")
)
sampling = plan.SamplingPlan(
    (plan.Poisson(0.02), plan.FixedSize(5), plan.FixedSize(6)),
    episode=plan.Episode(way=5, shot=1, query=5),
)
noise = plan.Mechanism(clip_unit="person", noise_multiplier=1.0)
release = plan.Release(hierarchy, sampling, noise)

STEPS, DELTA = 100, 1e-5
guarantees = accounting.guarantees(release, steps=STEPS, delta=DELTA)
print(*guarantees.values(), sep="\n")

# %% [markdown]
"""
One run, **three guarantees**, from the same noise: one for everything a person
gave, one for a single gesture of theirs, one for a single recording. A
recording is drawn less often than its person, so it hides better.

## 2. What such a number says

Somebody sees the trained model, knows everything else in the data, and wants to
know whether *this* person took part. A test that wrongly accuses a share *f* of
those who did not can find at most **e^ε · f + δ** of those who did. With ε = 0
it could only guess; the smaller ε, the closer to that.
"""


# %%
def found_at_most(guarantee, false_alarms):
  """The largest share that an attack can find, at a rate of false alarms."""
  grown = math.exp(guarantee.epsilon) * false_alarms
  return min(1.0, grown + guarantee.delta)


print(
    tables.text(
        ("unit", "ε", "found at most, at 1 % false alarms", "at 10 %"),
        [
            (
                level,
                report.rounded_up(g.epsilon),
                *(f"{100 * found_at_most(g, f):.1f} %" for f in (0.01, 0.1)),
            )
            for level, g in guarantees.items()
        ],
    )
)

# %% [markdown]
"""
Is ε merely a cautious bound? The library also computes the exact loss of one
data set that the plan allows: no proof, however clever, can promise less than
that. Here the two numbers nearly meet, so that there is little left to gain.
"""

# %%
for level, g in guarantees.items():
  least = accounting.lower_bound(
      release, steps=STEPS, level=level, delta=DELTA
  )
  print(f"{level}: ε is {report.between(least, g.epsilon)}")

# %% [markdown]
"""
## 3. What changes it

Four knobs: how many **steps**, how large a share of the people a step draws
(the **rate**), how much **noise**, and the **unit** that you ask about, one
line each.
"""

# %%
def with_rate(rate):
  stages = (plan.Poisson(rate), *sampling.stages[1:])
  p = plan.SamplingPlan(stages, episode=sampling.episode)
  return release.replace(plan=p)


def with_noise(z):
  m = plan.Mechanism(clip_unit="person", noise_multiplier=z)
  return release.replace(mechanism=m)


knobs = {
    "as above": (release, STEPS),
    "ten times the steps": (release, 10 * STEPS),
    "a tenth of the steps": (release, STEPS // 10),
    "a rate of 0.1": (with_rate(0.1), STEPS),
    "a rate of 0.005": (with_rate(0.005), STEPS),
    "half the noise": (with_noise(0.5), STEPS),
    "twice the noise": (with_noise(2.0), STEPS),
}
rows = []
for name, (r, t) in knobs.items():
  found = accounting.guarantees(r, steps=t, delta=DELTA)
  rows.append((name, *(report.rounded_up(g.epsilon) for g in found.values())))
print(tables.text(("change", *hierarchy.levels), rows))

# %% [markdown]
"""
Each row changes one knob and leaves the others as they are in section 1.
Twice the steps cost less than twice the ε here. Drawing fewer people in a step
makes each of them harder to see, and leaves less signal beside the same noise.
More people in the data at the same number in a step lower the rate, and that is
free: **data buy privacy**.

**The sampler is a knob too**, and one that is easily overlooked. The same
number of people in a step, drawn in three ways:
"""

# %%
expected = 40  # People in a step: 2000 of which each is drawn at rate 0.02.
samplers = {
    "each by a coin of their own": plan.Poisson(expected / 2000),
    "each in one step of every 50, by a die": plan.RandomAllocation(50),
    "exactly 40, drawn anew in each step": plan.FixedSize(expected),
}
rows = []
for name, stage in samplers.items():
  p = plan.SamplingPlan((stage, *sampling.stages[1:]), episode=sampling.episode)
  r = release.replace(plan=p)
  found = accounting.guarantees(r, steps=STEPS, delta=DELTA)
  epsilons_ = [report.rounded_up(g.epsilon) for g in found.values()]
  rows.append((name, stages_lib.stage_text(stage), *epsilons_))
header = ("how 40 people come into a step", "stage", *hierarchy.levels)
print(tables.text(header, rows))

# %% [markdown]
"""
A loop that draws exactly 40 and reports the first line's ε promises what it
does not keep. Why the last line is so much larger is the subject of the
notebook `sampler`.

## 4. The noise for the ε that you want

You will rather begin with ε and ask for the noise, or for the number of steps.
How to divide a budget among tasks, steps and noise is another question, which
the command `episodic-dp plan` answers (`docs/choosing.md`).
"""

# %%
wanted = accounting.calibrate(
    release, steps=STEPS, epsilon=1.0, delta=DELTA, level="person"
)
print(f"noise multiplier {wanted.noise_multiplier:.4f} stays within ε = 1")
most = accounting.max_steps(
    release, target_epsilon=2.0, delta=DELTA, level="person"
)
print(f"at noise multiplier 1, {most} steps stay within ε = 2")

# %% [markdown]
"""
## 5. What is refused

A number is given only where there is a proof. Clip the gradient of every
*gesture* inside a task, say, and the task's other examples leak through the
adapted model: nobody has a proof for that, so there is no ε, but a sentence
that names what would do.
"""

# %%
try:
  plan.Release(
      hierarchy,
      sampling,
      plan.Mechanism(clip_unit="gesture", noise_multiplier=1.0),
  )
except plan.UnsoundPlanError as refusal:
  print(refusal)

# %% [markdown]
"""
## 6. What a guarantee does *not* say

- It is **for one unit**. A family of four who all take part is protected less
  than each of them (`group=4` computes by how much).
- It bounds what is learned **from somebody's presence**, not what is learned
  about the world: a model that knows how people wave tells that you wave so.
- It covers **what was accounted for**. Settings tuned on the private data, a
  training loss shown to others, a second run on the same people: each costs
  more.
- It holds while **the key of sampling and noise is secret**. A run with a fixed
  key or seed can be repeated by whoever knows it, noise included, and has no
  guarantee against them. The library draws a fresh secret key for every run.

The assumptions are part of the guarantee; these are the ones of this run.
"""

# %%
for assumption in guarantees["person"].assumptions:
  print("-", assumption)

# %% [markdown]
"""
## 7. How to say it in a paper

Name ε *and* δ, the unit, the neighbouring relation, the sampler, the noise, the
steps and the accountant. The next cell writes the sentence from the objects
that the training loop reads, so that it cannot drift from what was run.
"""

# %%
g = guarantees["person"]
first, *inner = (stages_lib.stage_text(s) for s in sampling.stages)
print(
    f"The model is ({report.rounded_up(g.epsilon)}, {g.delta:g})-differentially"
    f" private for a {g.level} ({g.neighbours}), after {g.steps} steps that"
    f" each draw people by {first} of {hierarchy.sizes[0]}, then gestures and"
    f" recordings by {' and '.join(inner)}, clip the gradient of each"
    f" {noise.clip_unit} and add Gaussian noise of multiplier"
    f" {noise.noise_multiplier:g} (accountant: {g.accountant.upper()})."
)

# %% [markdown]
"""
Put a **privacy statement** beside the weights: a file that holds what was run
and what follows from it. Anybody can compute it again, without your data.
"""

# %%
statement = accounting.run_statement(
    accounting.Ledger().add(release, STEPS), delta=DELTA
)
checked = accounting.verify(statement)
header = ("level", "stated ε", "computed again", "verdict")
print(tables.text(header, checked.rows()))

# %% [markdown]
"""
A claim that is too good is found out. Here somebody divides the ε by ten:
"""

# %%
statement["guarantees"]["person"]["epsilon"] /= 10
print(tables.text(header, accounting.verify(statement).rows()))

# %% [markdown]
"""
## Where to go from here

- Your own sampler: change the stages in section 1. `docs/accounting.md` says
  which stage is which loop.
- Train with it: the notebook `handwriting`.
- Why the sampler decides, and an attack that shows it: the notebook `sampler`.
"""
