"""Sixty plans whose epsilons are recorded in `epsilons.json`."""

import itertools

from episodic_dp import plan

STEPS, DELTA = 60, 1e-5
ALL, FIXED, POISSON = plan.All, plan.FixedSize, plan.Poisson
USERS = ("user", "class", "image")


def _release(hierarchy, stages, unit, episode=None, short=False, **mechanism):
  settings = dict(clip_unit=unit, noise_multiplier=1.2, **mechanism)
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(stages, episode, allow_short_units=short),
      plan.Mechanism(**settings),
  )


def _firsts():
  """Yield name -> first stage of 400 units."""
  yield "poisson", POISSON(0.02)
  yield "fixed", FIXED(8)
  yield "all", ALL()
  yield "allocation", plan.RandomAllocation(20)


def _examples():
  """Example-level training: DP-SGD with one to three stages, no episode."""
  flat = plan.Hierarchy.regular((400,), levels=("image",))
  pairs = plan.Hierarchy.regular((400, 6), levels=("user", "image"))
  tree = plan.Hierarchy.regular((400, 3, 5), levels=USERS)
  inner = dict(fixed=FIXED(2), poisson=POISSON(0.3), all=ALL())
  for name, first in _firsts():
    yield f"examples/one/{name}", _release(flat, (first,), "image")
    for second, stage in inner.items():
      yield f"examples/two/{name}/{second}", _release(
          pairs, (first, stage), "image"
      )
    for second, stage in inner.items():
      if name != "allocation":
        yield f"examples/three/{name}/{second}", _release(
            tree, (first, FIXED(2), stage), "image"
        )
    if name != "all":
      yield f"examples/users/{name}", _release(
          pairs, (first, FIXED(3)), "user"
      )


def _tasks():
  """Tasks of the form "unit": one sampled user is one task."""
  tree = plan.Hierarchy.regular((400, 5, 4), levels=USERS)
  episode = plan.Episode(way=3, shot=1, query=1)
  for name, first in _firsts():
    stages = (first, FIXED(3), FIXED(2))
    yield f"unit/task/{name}", _release(tree, stages, "user", episode)
    if name != "allocation":
      yield f"unit/sample/{name}", _release(
          tree, stages, "image", episode,
          order="first", inner_steps=2,
          inner_clip_norm=1.0, inner_noise_multiplier=3.0,
      )
  adaptive = dict(
      clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
      count_noise=10.0,
  )
  yield "unit/quantile", _release(
      tree, (POISSON(0.02), FIXED(3), FIXED(2)), "user", episode, **adaptive
  )
  yield "unit/layer", _release(
      tree, (FIXED(8), FIXED(3), FIXED(2)), "user", episode,
      clip_by="layer", **adaptive
  )


def _classes():
  """Tasks made of drawn classes: "disjoint" and "independent"."""
  pool = plan.Hierarchy.regular((60, 20), levels=("class", "image"))
  deep = plan.Hierarchy.regular(
      (8, 12, 10), levels=("superclass", "class", "image")
  )
  for way, shot in itertools.product((3, 5), (1, 2)):
    episode = plan.Episode(way=way, shot=shot, query=1, form="disjoint")
    yield f"disjoint/{way}/{shot}", _release(
        pool, (FIXED(2 * way), FIXED(shot + 1)), plan.EPISODE, episode
    )
    episode = plan.Episode(
        way=way, shot=shot, query=1, form="independent", tasks=4
    )
    yield f"independent/{way}/{shot}", _release(
        pool, (FIXED(way), FIXED(shot + 1)), plan.EPISODE, episode
    )
  yield "disjoint/sample", _release(
      pool, (FIXED(6), FIXED(2)), "image",
      plan.Episode(way=3, shot=1, query=1, form="disjoint"),
      order="first", inner_steps=1,
      inner_clip_norm=1.0, inner_noise_multiplier=3.0,
  )
  for form, tasks in (("disjoint", None), ("independent", 3)):
    yield f"{form}/deep", _release(
        deep, (FIXED(2), FIXED(3), FIXED(2)), plan.EPISODE,
        plan.Episode(
            way=6 if tasks else 3, shot=1, query=1, form=form, tasks=tasks
        ),
    )


def _irregular():
  """Ragged trees, crossing levels and records that are in several places."""
  ragged = plan.Hierarchy.from_sizes(
      [[4, 2, 3], [4, 5], [7], [2, 2, 2, 6]] * 12, levels=USERS
  )
  for name, first in _firsts():
    yield f"ragged/{name}", _release(
        ragged, (first, FIXED(2), POISSON(0.4)), "image", short=True
    )
  diagnoses = [d for d in range(6) for _ in range(8)]
  patients = [p % 20 for d in range(6) for p in range(5 * d, 5 * d + 8)]
  crossing = plan.Hierarchy.from_labels(
      {"diagnosis": diagnoses, "patient": patients},
      leaf="image", crossing="patient",
  )
  for tasks in (1, 3):
    yield f"crossing/{tasks}", _release(
        crossing, (FIXED(3), FIXED(2), FIXED(1)), plan.EPISODE,
        plan.Episode(
            way=3, shot=1, query=1, form="independent", tasks=tasks,
            classes="diagnosis",
        ),
    )
  copies = plan.Hierarchy.regular(
      (400, 5, 4), levels=USERS, copies=True,
      most_copies={"class": 30, "image": 12},
  )
  episode = plan.Episode(way=5, shot=1, query=1)
  for name, first in _firsts():
    yield f"copies/{name}", _release(
        copies, (first, ALL(), FIXED(2)), "user", episode
    )


def _large():
  """Yield plans of the sizes that people use."""
  writers = plan.Hierarchy.regular((400_000, 5, 2), levels=USERS)
  yield "large/tasks", _release(
      writers, (POISSON(2e-4), FIXED(5), FIXED(2)), "user",
      plan.Episode(way=5, shot=1, query=1),
  )
  images = plan.Hierarchy.regular((60_000,), levels=("image",))
  yield "large/examples", _release(images, (POISSON(256 / 60_000),), "image")


def plans():
  """Return name -> release."""
  return dict(itertools.chain(
      _examples(), _tasks(), _classes(), _irregular(), _large()
  ))
