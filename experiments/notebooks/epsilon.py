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

Few-shot models train in *episodes*: a step samples people, then classes of each
person, then examples of each class. Differential privacy bounds what the
trained model reveals about any one of them. The bound is a number, ε. It
follows from three things only: **what a step samples, what is clipped, and how
much noise is added**. You need neither data nor training to compute it.

In this notebook you describe your training loop, compute its ε for people,
classes and single examples, see what changes it, and get the sentence for your
paper. It needs no GPU and takes a few seconds.

On Colab, run this in a new cell first, with the address of the repository that
you opened this notebook from:

    !git clone -q --depth=1 ADDRESS source
    %cd source
    %pip install -q .
"""

# %% [markdown]
"""
## 1. Describe what a step samples

2000 people each showed 20 gestures to a sensor, 15 times each. This is the
**hierarchy**: person → gesture → recording. In every step your loop

1. samples each person with probability 0.02, independently (`Poisson`),
2. samples 5 of that person's 20 gestures (`FixedSize`): a 5-way task,
3. samples 6 of the 15 recordings of each: 1 support and 5 query examples.

This is the **plan**. The **mechanism** says which unit one clipped gradient
belongs to, here a person, and how much noise is added to the sum of the clipped
gradients. The noise multiplier is the standard deviation of the noise divided
by the clip norm.
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
One run has **three guarantees**, from the same noise: for everything that a
person contributed, for one gesture of a person, and for one recording. A
recording is sampled less often than its person, so its ε is smaller.

## 2. What ε means

An attacker sees the trained model, knows all other data, and wants to find out
whether *this* person took part. A test that wrongly accuses a share *f* of the
people who did not take part finds at most **e^ε · f + δ** of those who did.
With ε = 0 the attacker can only guess, and a small ε is close to that.
"""


# %%
def found_at_most(guarantee, false_alarms):
  """Return the largest share that an attack finds at a rate of false alarms."""
  return min(1.0, math.exp(guarantee.epsilon) * false_alarms + guarantee.delta)


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
ε is an upper bound. The library also computes the exact privacy loss of one
data set that the plan allows, which is a lower bound: no proof can give a
smaller ε. Here the two bounds nearly agree.
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

Four settings change ε: the number of **steps**, the share of the people that a
step samples (the **rate**), the **noise**, and the privacy **unit**.
"""


# %%
def changed(rate=0.02, z=1.0):
  """Return the release of section 1 with another rate or noise."""
  stages = (plan.Poisson(rate), *sampling.stages[1:])
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(stages, episode=sampling.episode),
      plan.Mechanism(clip_unit="person", noise_multiplier=z),
  )


knobs = {
    "as above": (release, STEPS),
    "ten times the steps": (release, 10 * STEPS),
    "a tenth of the steps": (release, STEPS // 10),
    "a rate of 0.1": (changed(rate=0.1), STEPS),
    "a rate of 0.005": (changed(rate=0.005), STEPS),
    "half the noise": (changed(z=0.5), STEPS),
    "twice the noise": (changed(z=2.0), STEPS),
}
rows = []
for name, (r, t) in knobs.items():
  found = accounting.guarantees(r, steps=t, delta=DELTA)
  rows.append((name, *(report.rounded_up(g.epsilon) for g in found.values())))
print(tables.text(("change", *hierarchy.levels), rows))

# %% [markdown]
"""
Each row changes one setting of section 1. Twice the steps cost less than twice
the ε here. A step that samples fewer people protects each of them better, but
has less signal at the same noise. If more people contribute data and a step
still samples as many of them, the rate falls at no cost: **more data give more
privacy**.

**The sampler matters too**, and this is easily overlooked: a loop that samples
exactly 40 of the 2000 people and reports the ε of `Poisson(0.02)` makes a false
claim. The notebook `sampler` compares three ways to sample as many people, and
explains why a fixed number costs much more.

## 4. The noise for a wanted ε

You can also start from ε and compute the noise, or the number of steps. The
command `episodic-dp plan` divides a budget among tasks, steps and noise
(`docs/choosing.md`).
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

The library reports an ε only where it has a proof. If you clip the gradient of
every *gesture* inside a task, the other examples of the task leak through the
adapted model. No proof covers this, so you get an error that names a sound
setting.
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

- It is **for one unit**. A family of four people has less protection than each
  of them (`group=4` computes how much).
- It bounds what the model reveals because **someone took part**, not what it
  learns about people in general.
- It covers **the steps that were accounted for**. Settings tuned on the private
  data, a published training loss and a second run on the same people cost more.
- It holds while **the key of sampling and noise is secret**. Anyone who knows a
  fixed key or seed can repeat the run, noise included. The library uses a new
  secret key for every run.

The assumptions are part of the guarantee. Those of this run are:
"""

# %%
for assumption in guarantees["person"].assumptions:
  print("-", assumption)

# %% [markdown]
"""
## 7. The sentence for a paper

State ε *and* δ, the privacy unit, the neighbouring relation, the sampler, the
noise, the steps and the accountant. The next cell writes the sentence from the
objects that the training loop reads, so it describes what was run.
"""

# %%
g = guarantees["person"]
first, *inner = (stages_lib.stage_text(s) for s in sampling.stages)
print(
    f"The model is ({report.rounded_up(g.epsilon)}, {g.delta:g})-differentially"
    f" private for a {g.level} ({g.neighbours}), after {g.steps} steps that"
    f" each sample people by {first} of {hierarchy.sizes[0]}, then gestures and"
    f" recordings by {' and '.join(inner)}, clip the gradient of each"
    f" {noise.clip_unit} and add Gaussian noise of multiplier"
    f" {noise.noise_multiplier:g} (accountant: {g.accountant.upper()})."
)

# %% [markdown]
"""
Publish a **privacy statement** with the weights: a file that contains what was
run and the resulting guarantees. Anyone can compute it again, without your
data.
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
A false claim is detected. Here the stated ε is divided by ten:
"""

# %%
statement["guarantees"]["person"]["epsilon"] /= 10
print(tables.text(header, accounting.verify(statement).rows()))

# %% [markdown]
"""
## Where to go from here

- Your own sampler: change the stages in section 1. `docs/accounting.md` lists
  the stage for each type of loop.
- Train with it: the notebook `handwriting`.
- Why the sampler decides, and an attack that shows it: the notebook `sampler`.
"""
