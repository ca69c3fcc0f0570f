"""Every learner trains in the private step, and says what it is."""


import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import plan
from episodic_dp import private
from tests import fake_dataset

WAY = 3


def make(tiny, name):
  """A small learner of each kind, and of MAML++."""
  if name == "protonet":
    return learners.ProtoNet(tiny.model(width=6, out=4), way=WAY)
  if name == "ridge":
    return learners.RidgeHead(tiny.model(width=6, out=4), way=WAY, ridge=0.1)
  kind = dict(
      maml=learners.MAML,
      maml_plus_plus=learners.MAML,
      anil=learners.ANIL,
      meta_sgd=learners.MetaSGD,
      reptile=learners.Reptile,
  )[name]
  options = dict(inner_steps=1)
  if name in ("maml_plus_plus", "reptile"):
    options = dict(inner_steps=2)
  if name == "maml_plus_plus":
    options |= dict(learned_rates=True, loss_weights=(0.5, 0.5))
  return kind(tiny.model(width=6), inner_rate=0.5, **options)


NAMES = (
    "maml", "maml_plus_plus", "anil", "meta_sgd", "reptile", "protonet", "ridge"
)


def dataset():
  """Participants with the same four classes: the signs of two pixels.

  The other two pixels are loud noise, which a learner has to learn to ignore.
  """
  hierarchy = plan.Hierarchy.regular(
      (12, 4, 3), levels=("participant", "class", "image"), copies=True
  )
  rng = np.random.default_rng(0)
  images = rng.standard_normal((12, 4, 3, 4)) * [0.2, 0.2, 2, 2]
  for k in range(4):
    images[:, k, :, :2] += [2 * (k % 2) - 1, 2 * (k // 2) - 1]
  return fake_dataset.FakeDataset(
      images=images.reshape(-1, 2, 2, 1).astype(np.float32),
      hierarchy=hierarchy,
  )


def train(learner, steps, optimizer, noise=0.2):
  """The parameters before the first step and after each."""
  mechanism = plan.Mechanism(clip_unit="participant", noise_multiplier=noise)
  described = plan.SamplingPlan(
      (plan.FixedSize(6), plan.FixedSize(WAY), plan.FixedSize(2)),
      episode=plan.Episode(way=WAY, shot=1, query=1),
  )
  state = private.init(jax.random.key(1), learner, optimizer, mechanism)
  seen = [jax.tree.map(np.array, state.params)]
  step = private.make_meta_step(
    learner,
    optimizer,
    dataset(),
    plan.Release(dataset().hierarchy, described, mechanism),
  )
  for _ in range(steps):
    state, _ = step(state)
    seen.append(jax.tree.map(np.array, state.params))
  return seen


def _each(name):
  """ANIL and Meta-SGD take the program of MAML: not in the quick tests."""
  slow = name in ("anil", "meta_sgd")
  return pytest.param(name, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("name", [_each(name) for name in NAMES[1:]])
def test_every_learner_learns_under_clipping_and_noise(tiny, name):
  learner = make(tiny, name)
  before, *_, after = train(learner, 40, optax.adam(0.1))
  for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after)):
    assert np.isfinite(b).all() and (b != a).all()
  images = dataset().images.reshape(12, 4, 3, 2, 2, 1)

  @jax.jit
  def loss(params):
    def of_one(images):
      support, query = (
          tiny.Examples(images[:WAY, i], jnp.arange(WAY)) for i in (0, 1)
      )
      logits = learner.predict(params, support, query.images)
      return learners.cross_entropy(logits, query.labels)

    return jax.vmap(of_one)(images).mean()

  assert loss(after) < 0.7 * loss(before), (loss(after), loss(before))
