"""Steps on 1, 2, 4 and 8 forced host devices; prints what they gave as JSON.

A script, run by test_sharding.py: the number of devices is fixed when JAX
begins. Relative distances are those of all parameters from one device's.
"""

import dataclasses
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import training
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.private import step as step_lib
from tests import plans
from tests import task_sums
from tests.auditing import planted_on_devices
from tests.task_sums import flat

WAY, SIDE, PARTICIPANTS = 3, 4, 14
LEVELS = ("participant", "class", "image")
ADAM = optax.adam(0.05)
DEVICES = (1, 2, 4, 8)


def dataset(*, labels=False):
  hierarchy = plans.tree(LEVELS, PARTICIPANTS, WAY, 3)
  rng = np.random.default_rng(0)
  shape = (hierarchy.num_leaves, SIDE, SIDE, 1)
  images = rng.integers(0, 256, shape, np.uint8)
  # Images of many sizes, so that clip norms differ.
  images = images // rng.integers(1, 9, (len(images), 1, 1, 1), np.uint8)
  classes = rng.integers(0, WAY, len(images)) if labels else None
  return dataset_lib.ArrayDataset(
      name="random", images=images, hierarchy=hierarchy, labels=classes,
      rotate=not labels,
  )


MODEL = models.mlp(WAY, (4,), (SIDE, SIDE, 1))


class OwnHead(learners.Learner):
  """Differentiates by a head that begins at zero, which no cast reaches."""

  model = models.Model(
      lambda key: {"w": jax.random.normal(key, (SIDE * SIDE, 5))},
      lambda params, x: x.reshape(len(x), -1) @ params["w"] @ params["head"],
  )

  def adapt(self, params, support, *, inner_gradient=jax.grad):
    head = jax.grad(
        lambda head: self.adapted_loss(params | {"head": head}, support)
    )(jnp.zeros((5, WAY)))
    return params | {"head": -head}


def tasks_plan():
  return plans.sampling(0.5, WAY, 2, way=WAY, shot=1, query=1)


def mechanism(**options):
  return plan.Mechanism(**{
      "clip_unit": "participant", "clip_norm": 0.3, "noise_multiplier": 0.1,
      **options,
  })


def cases():
  """name -> learner, data, plan, mechanism."""
  maml = learners.MAML(MODEL, inner_steps=1, inner_rate=0.5)
  first = dataclasses.replace(maml, order="first")
  data, drawn = dataset(), tasks_plan()
  return {
      "fixed": (maml, data, drawn, mechanism()),
      "streamed": (
          maml, dataclasses.replace(data, resident=False), drawn, mechanism()
      ),
      "own_head": (OwnHead(), data, drawn, mechanism()),
      "private_quantile": (
          first, data, drawn,
          mechanism(
              clipping="private_quantile", clip_quantile=0.5, clip_rate=0.3,
              count_noise=1.0, clip_by="layer",
          ),
      ),
      "percentile_window": (
          first, data, drawn,
          mechanism(
              clipping="percentile_window", clip_percentile=40.0,
              clip_window=12, clip_norm=50.0,
          ),
      ),
      "sample_level": (
          learners.MAML(
              MODEL, inner_steps=1, inner_rate=0.5, order="first"
          ),
          data,
          plans.sampling(5, WAY, 2, way=WAY, shot=1, query=1),
          mechanism(
              clip_unit="image", order="first", inner_steps=1,
              inner_clip_norm=0.5, inner_noise_multiplier=1.0,
          ),
      ),
      "dp_sgd": (
          learners.Supervised(MODEL),
          dataset(labels=True),
          plans.sampling(PARTICIPANTS, WAY, 0.2),
          mechanism(clip_unit="image"),
      ),
  }


def distance(found, expected):
  return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def take(case, mesh, steps):
  """Parameters, clip norms and facts after some steps."""
  learner, data, drawn, released = case
  step = private.make_meta_step(
      learner, ADAM, data, plan.Release(data.hierarchy, drawn, released),
      compute=private.Compute(
          microbatch_size=2, mesh=mesh, diagnostics=True
      ),
  )
  state = private.init(jax.random.key(7), learner, ADAM, released)
  for _ in range(steps):
    state, metrics = step(state)
  facts = {k: float(v) for k, v in metrics.items()}
  clip = flat(jax.tree.leaves(state.clip)[0]).tolist()
  return flat(state.params), clip, facts


def agreement(names):
  """case -> devices -> distance from one device without a mesh."""
  found = {}
  for name in names:
    case = cases()[name]
    expected, clip, facts = take(case, None, 3)
    found[name] = {"tasks": facts["private/tasks"], "devices": {}}
    for devices in DEVICES if name == "fixed" else (8,):
      params, own_clip, own_facts = take(
          case, training.make_mesh(devices), 3
      )
      found[name]["devices"][devices] = {
          "params": distance(params, expected),
          "clip": [clip, own_clip],
          "facts": max(
              abs(own_facts[k] - v) / max(1e-3, abs(v))
              for k, v in facts.items()
          ),
      }
  return found


def one_step_sum(mesh):
  """Sum over devices, and find how far one task moves the sum.

  Returns:
    "sum", the distance from the sum on one device, and "move", the largest move
    when one of the eight tasks is replaced.
  """
  learner = learners.MAML(MODEL, inner_steps=1, inner_rate=0.5)
  params, key = learner.init(jax.random.key(0)), jax.random.key(3)
  options = dict(
      episode=plan.Episode(way=WAY, shot=1, query=1), microbatch_size=2
  )
  clipping = mechanism(clip_norm=1.0)
  rng = np.random.default_rng(1)
  images = rng.integers(0, 256, (16 * WAY * 2, SIDE, SIDE, 1), np.uint8)
  rows = np.arange(16 * WAY * 2, dtype=np.int32).reshape(16, WAY, 2)

  program = task_sums.settings_of(learner, clipping, **options)

  def tasks(rows):
    return step_lib.StepTasks(images, jnp.asarray(rows), jnp.arange(16) < 8)

  @jax.jit
  def total(params, tasks):
    state = task_sums.state_of(params, clipping, key)
    return step_lib.sum_tasks(program, mesh, state, tasks)

  expected, _ = jax.jit(
      lambda params, tasks: task_sums.sum_tasks(
          learner, clipping, params, tasks, key, **options
      )
  )(params, tasks(rows))
  base, moves = flat(total(params, tasks(rows)).gradient), []
  for i in range(8):
    other = rows.copy()
    other[i] = rows[8 + i]
    moves.append(np.linalg.norm(flat(total(params, tasks(other))[0]) - base))
  return {"sum": distance(base, flat(expected)), "move": float(max(moves))}


def without_the_locks():
  """The same sum where the cast of the parameters is left out."""
  with pytest.MonkeyPatch.context() as patch:
    planted_on_devices.remove_the_locks(patch)
    return one_step_sum(training.make_mesh(8))


def main():
  assert jax.device_count() == 8
  what, *rest = sys.argv[1:]
  if what == "sums":
    meshes = {n: training.make_mesh(int(n)) for n in rest}
    found = {n: one_step_sum(mesh) for n, mesh in meshes.items()}
    found["planted"] = without_the_locks()
  else:
    found = agreement(rest or list(cases()))
  json.dump(found, sys.stdout)


if __name__ == "__main__":
  main()
