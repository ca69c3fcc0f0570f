"""Networks that mix examples are refused wherever examples are clip units."""


import jax
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp.private import checks
from tests import fake_dataset

SHAPE = (2, 2, 1)


def linear(mix):
  def apply(params, images):
    x = images.reshape(images.shape[0], -1)
    return (x - mix * x.mean(0) if mix else x) @ params

  init = jax.jit(lambda key: jax.random.normal(key, (4, 3)))
  # What a model claims is not read.
  return models.Model(init, apply, mixes_examples=not mix)


def test_what_a_network_does_decides():
  checks.check_network(linear(0.0), SHAPE, "image")
  with pytest.raises(plan.UnsoundPlanError, match="'image'.*norm='group'"):
    checks.check_network(linear(1e-6), SHAPE, "image")


@pytest.mark.parametrize("mix", [0.0, 0.5])
def test_examples_as_clip_units_need_a_network_that_keeps_them_apart(mix):
  """DP-SGD: the gradient of one example would be another's too."""
  data = fake_dataset.FakeDataset(
      images=np.zeros((14, *SHAPE), np.uint8),
      hierarchy=plan.Hierarchy.regular((14,), levels=("image",)),
      labels=np.arange(14) % 3,
  )
  arguments = (
      learners.Supervised(linear(mix)), optax.sgd(0.1), data,
      plan.Release(
          data.hierarchy,
          plan.SamplingPlan((plan.Poisson(0.5),)),
          plan.Mechanism(clip_unit="image", noise_multiplier=1.0),
      ),
  )
  if not mix:
    assert callable(private.make_meta_step(*arguments))
  else:
    with pytest.raises(plan.UnsoundPlanError, match="mixes examples"):
      private.make_meta_step(*arguments)
