"""Compute what three private steps give in eight configurations.

As a script it prints JSON, since the number of devices is fixed when JAX
starts: `python -m tests.golden.steps 2 NAME ...`. Each parameter
array is recorded as its sum and one projection. A sum in another order is then
not a difference, but another random number is.
"""

import dataclasses
import json
import sys

import jax
import numpy as np
import optax

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import training
from episodic_dp.data import dataset as dataset_lib

WAY, SIDE = 3, 4
QUANTILE = dict(
    clipping="private_quantile", clip_quantile=0.5, clip_rate=0.3,
    count_noise=1.0,
)
SAMPLE = dict(
    clip_unit="image", order="first", inner_steps=1, inner_clip_norm=0.5,
    inner_noise_multiplier=1.0,
)


def _dataset(sizes, levels, *, labels=False):
  hierarchy = plan.Hierarchy.regular(sizes, levels=levels)
  rng = np.random.default_rng(0)
  images = rng.integers(
      0, 256, (hierarchy.num_leaves, SIDE, SIDE, 1), np.uint8
  )
  return dataset_lib.ArrayDataset(
      name="random", images=images, hierarchy=hierarchy, rotate=not labels,
      labels=rng.integers(0, WAY, len(images)) if labels else None,
  )


def cases():
  """Return name -> (learner, data, sampling plan, mechanism's options)."""
  network = models.mlp(WAY, (4,), (SIDE, SIDE, 1))
  embedding = models.mlp(6, (4,), (SIDE, SIDE, 1))
  maml = learners.MAML(network, inner_steps=1, inner_rate=0.5)
  first = dataclasses.replace(maml, order="first")
  people = _dataset((14, WAY, 3), ("participant", "class", "image"))
  labelled = _dataset(
      (14, WAY, 3), ("participant", "class", "image"), labels=True
  )
  pool = _dataset((30, 4), ("class", "image"))
  fixed, poisson = plan.FixedSize, plan.Poisson

  def unit(stage):
    return plan.SamplingPlan(
        (stage, fixed(WAY), fixed(2)), plan.Episode(way=WAY, shot=1, query=1)
    )

  def grouped(classes, **form):
    return plan.SamplingPlan(
        (fixed(classes), fixed(2)),
        plan.Episode(way=WAY, shot=1, query=1, **form),
    )

  task, episode = dict(clip_unit="participant"), dict(clip_unit="episode")
  return {
      "unit": (maml, people, unit(poisson(0.4)), task),
      "unit quantile layer": (
          maml, people, unit(fixed(5)), task | QUANTILE | {"clip_by": "layer"}
      ),
      "unit allocation": (
          learners.Reptile(network, inner_steps=1, inner_rate=0.5), people,
          unit(plan.RandomAllocation(3)), task,
      ),
      "unit sample": (first, people, unit(fixed(5)), SAMPLE),
      "disjoint": (maml, pool, grouped(12, form="disjoint"), episode),
      "disjoint quantile": (
          maml, pool, grouped(12, form="disjoint"), episode | QUANTILE
      ),
      "independent": (
          learners.ProtoNet(embedding, way=WAY), pool,
          grouped(WAY, form="independent", tasks=4), episode,
      ),
      "examples": (
          learners.Supervised(network), labelled,
          plan.SamplingPlan((fixed(6), fixed(2), poisson(0.5))),
          dict(clip_unit="image") | QUANTILE,
      ),
  }


def digest(case, devices):
  """Return [sum, projection] of each parameter array after three steps."""
  learner, data, sampling_plan, options = case
  mechanism = plan.Mechanism(
      **dict(clip_norm=0.3, noise_multiplier=0.5) | options
  )
  optimizer = optax.adam(0.05)
  step = private.make_meta_step(
      learner, optimizer, data,
      plan.Release(data.hierarchy, sampling_plan, mechanism),
      compute=private.Compute(
          microbatch_size=2,
          mesh=training.make_mesh(devices) if devices > 1 else None,
      ),
  )
  state = private.init(jax.random.key(7), learner, optimizer, mechanism)
  for _ in range(3):
    state, _ = step(state)
  found = []
  for leaf in jax.tree.leaves((state.params, state.opt_state)):
    leaf = np.asarray(leaf, np.float64).ravel()
    wave = np.cos(np.arange(leaf.size))
    found.append([float(leaf.sum()), float(leaf @ wave)])
  return found


if __name__ == "__main__":
  devices, names = int(sys.argv[1]), sys.argv[2:]
  assert jax.device_count() >= devices
  found = cases()
  json.dump({name: digest(found[name], devices) for name in names}, sys.stdout)
