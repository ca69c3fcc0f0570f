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
# Why the sampler decides

[![Open in Colab][badge]][colab]

[badge]: https://colab.research.google.com/assets/colab-badge.svg
[colab]: https://colab.research.google.com/github

Two training loops take 1600 of 400 000 people in a step, clip alike and add the
same noise. One has ε = 0.5, the other ε = 6. The only difference is *how* the
1600 are drawn. This notebook shows the difference in three ways: by the
accountant, by a counterexample small enough to draw, and by an attack on the
real training step that refutes a published formula.

It takes about a minute on two CPU cores. The next cell installs the library
where it is missing. (Colab asks for the address of the repository: the one that
you opened this notebook from.)
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
## 1. Three ways to draw 1600 of 400 000

- **Fixed size**: exactly 1600, drawn anew in each step. What most loops do.
- **Poisson**: each person by a coin of their own, with probability 0.004. About
  1600 come, sometimes more, sometimes fewer.
- **Random allocation**: each person throws a die with 250 faces and comes in
  that step, once in 250 steps. A pass over the data, with parts of unequal
  size.
"""

# %%
from IPython.display import Image
from IPython.display import Markdown
import numpy as np

import episodic_dp
from episodic_dp import accounting
from episodic_dp import auditing
from episodic_dp import plan
from episodic_dp.accounting import report
from episodic_dp.output import plotting
from episodic_dp.output import tables
from experiments.evidence import errata
from tests.oracles import exact
from tests.oracles import worst_case

episodic_dp.use_all_cores()


def of_people(count, stage, z):
  """A release of `count` people, each of whom gives one clipped gradient."""
  return plan.Release(
      plan.Hierarchy.regular((count,), levels=("person",)),
      plan.SamplingPlan((stage,)),
      plan.Mechanism(clip_unit="person", noise_multiplier=z),
  )


SAMPLERS = {
    "fixed size": plan.FixedSize(1600),
    "Poisson": plan.Poisson(0.004),
    "random allocation": plan.RandomAllocation(250),
}
PASSES = (1, 2, 4, 8)[: 1 if SCALE == "smoke" else None]


for name, stage in SAMPLERS.items():
  release = of_people(400_000, stage, z=1.0)
  for t in (250 * n for n in PASSES):
    print(name, accounting.guarantee(
        release, steps=t, delta=1e-6, level="person"
    ))

# %% [markdown]
"""
## 2. The counterexample

Privacy asks what changes when one person is *removed*. With Poisson coins the
others' coins stay as they were: the person's gradient is missing, and the sum
moves by one clip norm C. With a fixed size **somebody else comes instead**: one
gradient goes and another comes, and the sum moves by up to 2C.

Two people are enough to see it. The gradient of A is +1, that of B is −1 (in
clip norms), the noise multiplier is 1, and a step draws one of the two, or each
with probability 1/2. Below is all that can be released, with A in the data and
without. These are not simulations: every draw is enumerated.
"""

# %%
Z = 1.0
PAIR = {
    "fixed size: exactly one of two": plan.FixedSize(1),
    "Poisson: each with probability 1/2": plan.Poisson(0.5),
}


def a_and_b(unit):
  """The gradient of a drawn unit: A is number 0."""
  return 1.0 if unit[1] == 0 else -1.0


for name, stage in PAIR.items():
  release = of_people(2, stage, Z)
  both = exact.pair(release.hierarchy, release.plan, 0, 0)
  for label, drawn in zip(("with A", "without A"), both):
    sums, weights = exact.mixture(drawn, 0, a_and_b)
    print(f"{name}, {label}: sums {sums} with probabilities {weights}")

# %% [markdown]
"""
With a fixed size, without A every draw of A becomes one of B: +1 turns into −1.
With Poisson +1 turns into 0 only: the two lie closer together, and A hides
better.

How well *can* they be told apart? For every ε there is a least δ, and "(ε, δ)"
holds exactly when δ is at least that. The enumeration gives it for the worst
gradients; the accountant has to give as much or more. "Theorem 3 as printed" is
the formula of *Privacy Amplification for Episodic Training Methods* (Tombs,
Kotevska and Young, 2022) for multistage sampling: it takes the inclusion
probability, here 1/2, and the Gaussian mechanism at distance C, whatever the
sampler. That fits the Poisson sampler. The theorem, however, is stated for
fixed sizes.
"""


# %%
@plotting.styled
def profiles():
  """The least delta of one step: enumerated, accounted, and as printed."""
  figure = plotting.figure(3.0, width=plotting.WIDE)
  at = np.linspace(0.05, 2.5, 4 if SCALE == "smoke" else 25)
  panels = figure.subplots(1, 2, sharey=True)
  for axes, (name, stage) in zip(panels, PAIR.items()):
    release = of_people(2, stage, Z)
    drawn = exact.pair(release.hierarchy, release.plan, 0, 0)
    gradients = list(worst_case.gradients(release.hierarchy, 0, 0))
    truth = [
        max(
            delta
            for g in gradients
            for delta in exact.divergences(drawn, 0, g, e, Z).values()
        )
        for e in at
    ]
    accounted = [
        accounting.guarantee(release, steps=1, epsilon=e, level="person").delta
        for e in at
    ]
    printed = [accounting.theorem3_as_printed(0.5, e, Z) for e in at]
    curves = {
        "the truth, enumerated": truth,
        "accountant": accounted,
        "Theorem 3 as printed": printed,
    }
    for number, (label, curve) in enumerate(curves.items()):
      style = plotting.series(number) | {"marker": ""}
      axes.plot(at, curve, label=label, **style)
    axes.set_yscale("log")
    axes.set_title(name)
    axes.set_xlabel("ε")
  panels[0].set_ylabel("least δ of one step")
  panels[0].legend(loc="lower left")
  return figure


Image(plotting.png(profiles()))

# %% [markdown]
"""
On the left the printed formula lies *below* the truth: it promises what does
not hold. The accountant lies on the truth, in both panels.

The paper's own Example 3.1 shows the same (a small hierarchy, one unit of each
level drawn by fixed size, noise multiplier 1). At ε = 0.5 the truth is twenty
times what is printed:
"""

# %%
Markdown(errata.theorem3().markdown())

# %% [markdown]
"""
## 3. The attack

Is that only a worry of theory? The library makes thousands of small runs **of
the real training step**, half of them with one person more, and somebody who
knows all but that tells them apart as well as anyone can. How often that
succeeds gives a *lower* bound on ε, with confidence: the true ε is at least the
measured one.

Two people again, eight steps, noise multiplier 2. The measured ε must not
exceed what the accountant claims. Against the printed formula it may, and then
the formula is refuted.
"""

# %%
STEPS, NOISE, DELTA, CONFIDENCE = 8, 2.0, 0.01, 0.99
RUNS = 200 if SCALE == "smoke" else 30_000
ATTACKED = {
    "fixed size": plan.FixedSize(1),
    "Poisson": plan.Poisson(0.5),
    "random allocation": plan.RandomAllocation(2),
}
# As one stage of rate 1/2 at distance C, whatever the sampler.
printed = accounting.epsilon(1.0, 0.5, 1 / NOISE, steps=STEPS, delta=DELTA)
claimed, measured, scores = {}, {}, {}
for name, stage in ATTACKED.items():
  release = of_people(2, stage, NOISE)
  claim = accounting.guarantee(
      release, steps=STEPS, delta=DELTA, level="person"
  )
  canary = auditing.worst_case(release, "person", direction=claim.direction)
  made = auditing.many_runs(canary, runs=RUNS, steps=STEPS)
  scores[name] = [s[:, -1] for s in made]
  bound = auditing.lower_bound(
      *scores[name], delta=DELTA, confidence=CONFIDENCE
  )
  claimed[name], measured[name] = claim.epsilon, bound.epsilon
print(
    tables.text(
        ("sampler", "ε, by the attack and by the proof", "as printed"),
        [
            (
                name,
                report.between(measured[name], claimed[name]),
                report.rounded_up(printed),
            )
            for name in ATTACKED
        ],
    )
)

# %% [markdown]
"""
What the attacker sees: the score of each run, high where A seems to have been
there. Where the two hills hardly overlap, hardly anything is hidden.
"""


# %%
@plotting.styled
def attack():
  """Draw scores with and without the record."""
  figure = plotting.figure(3.0, width=plotting.WIDE)
  for axes, name in zip(figure.subplots(1, 2), ("fixed size", "Poisson")):
    ends = np.percentile(np.concatenate(scores[name]), (0.1, 99.9))
    axes.hist(
        scores[name], np.linspace(*ends), histtype="step", density=True,
        color=plotting.COLORS[:2], label=("with A", "without A"),
    )
    axes.set_title(name)
    axes.set_xlabel("the attacker's score of a run")
    axes.legend()
  return figure


Image(plotting.png(attack()))

# %% [markdown]
"""
With fixed size the attack alone shows a larger ε than the printed formula
claims. The formula's number belongs to the Poisson sampler, whose claim it
meets, and the attack stays below it there.

`episodic-dp audit --config=FILE` does this for a configuration of yours, at
every level. An attack that finds nothing proves nothing; a proof holds against
all of them. So both are done: the proof for the claim, the attack for the
program.

## 4. The sampler is not the only place

A clip norm may leak as well. The recipe of DP-MAML takes the clip norm C from a
percentile of the *raw* gradient norms, which nobody noised. One small task more
among twenty can move that percentile a hundredfold, and the noise, z · C, moves
with it: its size alone gives the task away. Exact numbers, beside what is
claimed for that noise:
"""

# %%
Markdown(errata.percentile_clipping().markdown())

# %% [markdown]
"""
More noise does not help, since the noise shrinks too. In the library such
clipping runs, for comparison, and is reported as *no formal guarantee*;
`clipping="private_quantile"` adapts C by a noised count instead, at no further
cost.

## What to take home

1. Write down the sampler that *runs*, and account for that one. In this library
   the two are the same object, so that they cannot drift apart.
2. Prefer Poisson draws or random allocation to a fixed size.
3. Loops that shuffle the data and cut them into batches are none of the three:
   no tight proof is known for them, and the other samplers' numbers do not
   hold.

The proofs, and all the errata: `episodic_dp/accounting/README.md`. More
attacks: `docs/attacks.md`.
"""
