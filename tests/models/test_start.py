"""Networks that begin with public weights, and what of them is trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import models
from episodic_dp.models import parts

SHAPE = (4,)


def network(norm=True, head=True):
  """A layer, a norm where it is asked for, and a head."""

  def init(key):
    a, b = jax.random.split(key)
    params = {"hidden": {"kernel": jax.random.normal(a, (4, 6))}}
    if norm:
      params["norm"] = {"scale": jnp.ones(6), "bias": jnp.zeros(6)}
    if head:
      params["head"] = {
          "kernel": jax.random.normal(b, (6, 3)), "bias": jnp.zeros(3)
      }
    return params

  def apply(params, x):
    x = x @ params["hidden"]["kernel"]
    if norm:
      x = x * params["norm"]["scale"] + params["norm"]["bias"]
    x = jnp.tanh(x)
    if head:
      x = x @ params["head"]["kernel"] + params["head"]["bias"]
    return x

  return models.Model(init, apply, mixes_examples=False)


def start_of(model, seed=7):
  params = model.init(jax.random.key(seed))
  return {k: np.asarray(v) for k, v in parts.by_name(params).items()}


HEAD = {"head/kernel", "head/bias"}
NORM = {"norm/scale", "norm/bias"}
TRAINED = {
    "all": {*HEAD, *NORM, "hidden/kernel"},
    "head": HEAD,
    "scale_shift": {*HEAD, *NORM},
    "low_rank": {*HEAD, "hidden/kernel/down", "hidden/kernel/up"},
}


@pytest.mark.parametrize("trained", TRAINED)
def test_a_network_begins_as_its_start_and_trains_what_is_said(trained):
  model, start = network(), start_of(network())
  found = models.start_from(model, start, trained=trained, rank=2)
  params = found.init(jax.random.key(0))
  assert set(parts.by_name(params)) == TRAINED[trained]
  x = jax.random.normal(jax.random.key(1), (5, *SHAPE))
  np.testing.assert_allclose(
      found.apply(params, x),
      model.apply(model.init(jax.random.key(7)), x),
      rtol=1e-6,
  )
  whole = params if found.whole is None else found.whole(params)
  for name, array in parts.by_name(whole).items():
    np.testing.assert_array_equal(array, start[name])
  assert found.start and not found.mixes_examples
  # Moved, what is trained alone differs from the start.
  moved = jax.tree.map(lambda p: p + 0.5, params)
  whole = moved if found.whole is None else found.whole(moved)
  changed = {
      name for name, array in parts.by_name(whole).items()
      if (np.asarray(array) != start[name]).any()
  }  # fmt: skip
  expected = {n.removesuffix("/down").removesuffix("/up") for n in params_of(
      trained)}
  assert changed == expected
  # Every trained number has a slope: none is noised for nothing.
  slopes = jax.grad(lambda p: (found.apply(p, x) ** 2).sum())(moved)
  assert all((np.asarray(s) != 0).all() for s in jax.tree.leaves(slopes))


def params_of(trained):
  return TRAINED[trained]


def test_low_rank_adds_a_product_to_every_kernel_before_the_head():
  model = models.start_from(
      network(), start_of(network()), trained="low_rank", rank=2
  )
  params = model.init(jax.random.key(0))
  factors = params["hidden"]["kernel"]
  assert factors["down"].shape == (4, 2) and factors["up"].shape == (2, 6)
  assert (factors["up"] == 0).all() and (factors["down"] != 0).all()
  factors["up"] = jnp.ones((2, 6))
  np.testing.assert_allclose(
      model.whole(params)["hidden"]["kernel"],
      start_of(network())["hidden/kernel"] + factors["down"].sum(1)[:, None],
      rtol=1e-5,
  )
  large = models.start_from(
      network(), start_of(network()), trained="low_rank", rank=99
  )
  assert large.init(jax.random.key(0))["hidden"]["kernel"]["up"].shape == (4, 6)


def test_convolutions_and_norms_of_conv4_are_found():
  model = models.conv4(3, 4, "group", (16, 16, 1))
  shapes = parts.by_name(jax.eval_shape(model.init, jax.random.key(0)))
  start = {name: np.ones(s.shape, np.float32) for name, s in shapes.items()}
  counts = {}
  for trained in TRAINED:
    found = models.start_from(model, start, trained=trained, rank=1)
    params = jax.eval_shape(found.init, jax.random.key(0))
    counts[trained] = sum(s.size for s in jax.tree.leaves(params))
  head = 4 * 3 + 3
  assert counts == {
      "all": sum(s.size for s in shapes.values()),
      "head": head,
      "scale_shift": head + 4 * 2 * 4,
      "low_rank": head + (9 + 4) + 3 * (36 + 4),
  }
  haiku = models.conv4(3, 4, "group", (16, 16, 1), "haiku")
  names = parts.by_name(jax.eval_shape(haiku.init, jax.random.key(0)))
  found = models.start_from(
      haiku,
      {name: np.ones(s.shape, np.float32) for name, s in names.items()},
      trained="scale_shift",
  )
  params = jax.eval_shape(found.init, jax.random.key(0))
  assert sum(s.size for s in jax.tree.leaves(params)) == counts["scale_shift"]


def test_a_head_of_other_classes_is_drawn_by_the_seed():
  start = start_of(network()) | {"head/kernel": np.zeros((6, 9), np.float32)}
  model = models.start_from(network(), start)
  a, b = (model.init(jax.random.key(i)) for i in (0, 1))
  assert (a["head"]["kernel"] != b["head"]["kernel"]).all()
  np.testing.assert_array_equal(a["hidden"]["kernel"], b["hidden"]["kernel"])


def test_random_layers_stay_random():
  base = network()
  model = base._replace(
      random=lambda p, x, key: base.apply(p, x) + jax.random.uniform(key)
  )
  found = models.start_from(model, start_of(base), trained="head")
  params = found.init(jax.random.key(0))
  x = jnp.ones((2, *SHAPE))
  drawn = found.drawing(jax.random.key(0)).apply(params, x)
  assert (drawn != found.apply(params, x)).all()


@pytest.mark.parametrize(
    "model, options, sentence",
    [
        (network(), {"trained": "film"}, "trained='film' must be one of"),
        (network(), {"rank": 0}, "rank 0 must be at least 1"),
        (network(norm=False), {"trained": "scale_shift"}, "has no norms"),
        (network(head=False), {"trained": "head"}, "has no layer 'head'"),
        (
            models.Model(lambda key: {"a": jnp.ones(3)}, lambda p, x: x),
            {"trained": "low_rank"},
            "has no kernels",
        ),
        (
            models.Model(lambda key: [jnp.ones(3)], lambda p, x: x),
            {},
            "no dictionaries of dictionaries of arrays",
        ),
    ],
)
def test_what_would_train_nothing_is_refused(model, options, sentence):
  try:
    start = start_of(model)
  except ValueError:
    start = {}
  with pytest.raises(ValueError, match=sentence):
    models.start_from(model, start, **options)
