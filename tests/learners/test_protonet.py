"""ProtoNet against the paper's equations, written as loops."""

import jax
import numpy as np

from episodic_dp import learners


def plain_logits(tiny, params, support, images, *, cosine=None):
  """By squared distances; by angles, times a scale, where it is given."""
  embedded = tiny.outputs(params, support.images)
  queries = tiny.outputs(params, images)
  if cosine is not None:
    embedded, queries = ([e / np.linalg.norm(e) for e in b]
                         for b in (embedded, queries))
  result = np.zeros((len(images), tiny.WAY))
  for k in range(tiny.WAY):
    members = [e for e, label in zip(embedded, support.labels) if label == k]
    prototype = sum(members) / len(members)
    for i, query in enumerate(queries):
      if cosine is None:
        result[i, k] = -sum((query - prototype) ** 2)
      else:
        angle = query @ prototype / np.linalg.norm(prototype)
        result[i, k] = cosine * angle
  return result


def test_loss_and_gradient_are_those_of_the_equations(tiny):
  learner = learners.ProtoNet(tiny.model(out=5), way=tiny.WAY)
  episode = tiny.episode(shot=2, query=2)
  tiny.assert_gradient(
      lambda p: learner.loss(p, episode),
      lambda p: tiny.cross_entropy(
          plain_logits(tiny, p, episode.support, episode.query.images),
          episode.query.labels,
      ),
      learner.init(jax.random.key(0)),
  )


def test_cosine_is_the_angle_times_a_learned_scale(tiny):
  learner = learners.ProtoNet(
      tiny.model(out=5), way=tiny.WAY, metric="cosine", scale=4.0
  )
  episode = tiny.episode(shot=2, query=2)
  params = learner.init(jax.random.key(0))
  np.testing.assert_allclose(params["log_scale"], np.log(4.0), rtol=1e-6)
  tiny.assert_gradient(
      lambda p: learner.loss(p, episode),
      lambda p: tiny.cross_entropy(
          plain_logits(
              tiny,
              p["model"],
              episode.support,
              episode.query.images,
              cosine=np.exp(p["log_scale"]),
          ),
          episode.query.labels,
      ),
      params,
  )


def test_a_scale_multiplies_the_distances(tiny):
  support, query = tiny.episode(dtype=np.float32)
  plain, scaled = (
      learners.ProtoNet(tiny.model(), way=tiny.WAY, scale=scale)
      for scale in (1.0, 0.25)
  )
  params = plain.init(jax.random.key(0))
  np.testing.assert_allclose(
      scaled.predict(params, support, query.images),
      0.25 * plain.predict(params, support, query.images),
      rtol=1e-6,
  )


def test_classes_of_unequal_size_have_their_own_means(tiny):
  learner = learners.ProtoNet(tiny.model(out=5), way=tiny.WAY)
  params = learner.init(jax.random.key(0))
  support, query = tiny.episode(shot=3, dtype=np.float32)
  support = tiny.Examples(
      support.images, np.asarray([0, 2, 1, 1, 0, 1, 1, 1, 0], np.int32)
  )
  logits = learner.predict(params, support, query.images)
  expected = plain_logits(tiny, tiny.in_float64(params), support, query.images)
  np.testing.assert_allclose(logits, expected, rtol=1e-4)
  # Each query is judged alone: its logits do not see the others.
  alone = learner.predict(params, support, query.images[:1])
  np.testing.assert_allclose(alone, expected[:1], rtol=1e-4)
