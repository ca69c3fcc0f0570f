"""The roles of a step give its update; what they send is counted."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp.private import roles

HIERARCHY = plan.Hierarchy.regular(
    (6, 5, 3), levels=("participant", "glyph", "drawing")
)
EPISODE = plan.Episode(way=3, shot=1, query=2)
PLAN = plan.SamplingPlan(
    (plan.Poisson(0.6), plan.FixedSize(3), plan.FixedSize(3)), episode=EPISODE
)


def release_of(**mechanism):
  fields = dict(
      clip_unit="participant", clip_norm=0.3, noise_multiplier=0.7, **mechanism
  )
  return plan.Release(HIERARCHY, PLAN, plan.Mechanism(**fields))


def dataset():
  images = np.random.default_rng(0).integers(
      0, 256, (HIERARCHY.num_leaves, 4, 4, 1), np.uint8
  )
  return data.ArrayDataset(name="noise", images=images, hierarchy=HIERARCHY)


@pytest.mark.slow  # Compiles a step.
def test_participants_and_server_together_are_a_step():
  learner = learners.MAML(models.mlp(3, (4,), (4, 4, 1)), inner_steps=1)
  optimizer = optax.adam(0.1)
  release, examples = release_of(clip_by="layer"), dataset()
  key = private.secret_key(b"12345678")
  state = private.init(key, learner, optimizer, release.mechanism)
  apart = private.init(key, learner, optimizer, release.mechanism)
  step = private.make_meta_step(learner, optimizer, examples, release)
  compute = jax.jit(functools.partial(roles.participant, learner, release))
  sent = []
  for _ in range(4):
    invited = roles.invite(release, examples, apart)
    sent.append(len(invited))
    received = [
        compute(one, jnp.asarray(examples.images[one.rows])) for one in invited
    ]
    for gradient in received:
      assert optax.tree.norm(gradient) <= 0.3 * (1 + 1e-6)
    apart = roles.server(optimizer, release, apart, received)
    state, _ = step(state)
  assert len(set(sent)) > 1  # Their number is random, as it is secret.
  assert int(apart.step) == int(state.step) == 4
  jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5),
      apart.params,
      state.params,
  )


def test_what_is_sent_is_counted():
  found = roles.traffic(release_of(), 100, 50)
  assert (found.participant, found.participants) == ("participant", 6)
  assert (found.down, found.up) == (400, 400)
  assert found.rate == 0.6 and found.expected == pytest.approx(3.6)
  assert found.up_in_all == pytest.approx(400 * 0.6 * 50)
  adaptive = release_of(
      clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
      count_noise=1.0,
  )  # fmt: skip
  assert roles.traffic(adaptive, 100, 50).up == 404


def test_what_a_participant_could_not_compute_alone_is_refused():
  together = dataclasses.replace(
      PLAN,
      stages=(plan.FixedSize(3), plan.FixedSize(1), plan.FixedSize(3)),
      episode=dataclasses.replace(EPISODE, form="disjoint"),
  )
  mechanism = plan.Mechanism(clip_unit="episode", noise_multiplier=1.0)
  release = plan.Release(HIERARCHY, together, mechanism)
  assert roles.traffic(release, 100, 50) is None
  with pytest.raises(plan.PlanError, match="form='unit'"):
    roles.invite(release, dataset(), None)
  adaptive = release_of(
      clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
      count_noise=1.0,
  )  # fmt: skip
  with pytest.raises(plan.PlanError, match="clipping='fixed'"):
    roles.invite(adaptive, dataset(), None)
