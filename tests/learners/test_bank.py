"""What holds for every learner, with every network and on every plan."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import backends
from episodic_dp import export
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import options
from episodic_dp import plan
from episodic_dp import private
from episodic_dp.config import reference
from episodic_dp.learners import naming
from episodic_dp.models import parts
from episodic_dp.private import step as step_lib
from episodic_dp.sampling import episodes
from experiments.evidence import learners as pages
from tests import fake_dataset
from tests import fake_network
from tests import plans
from tests import task_sums
from tests.cli import tiny_runs
from tests.learners import bank
from tests.learners import tiny
from tests.task_sums import flat

WAY, SHOT, QUERY, TASKS = bank.WAY, 2, 4, 4


# A prediction depends on the model, the support set and its own image ---------


def task(learner, network, public):
  """A learner with random parameters, and a task of random images."""
  rng, shape = np.random.default_rng(0), bank.NETWORKS[network]
  made = bank.make(learner, network, public)
  params = jax.tree.map(
      lambda p: p + 0.1 * rng.standard_normal(p.shape, np.float32),
      made.init(jax.random.key(1)),
  )
  images = rng.random((WAY, SHOT + QUERY, *shape), np.float32)
  images += rng.random((WAY, 1, *shape), np.float32)
  support = episodes.Examples(
      images[:, :SHOT].reshape(-1, *shape),
      np.repeat(np.arange(WAY, dtype=np.int32), SHOT),
  )
  return made, params, support, images[:, SHOT:]


PREDICTIONS = [
    case
    for case in itertools.product(
        [name for name in bank.LEARNERS if "turns" not in name]
        + [bank.FINE_TUNING],
        bank.NETWORKS, (False, True),
    )
    if not case[2] or (
        case[0] in options.named(options.CLOSED_FORM)
        and case[1] in bank.CONVOLUTIONS
    )
]


@pytest.mark.parametrize("learner, network, public", bank.cases(PREDICTIONS, {
    ("protonet", "conv4", True), ("ridge", "own", False),
    ("maml", "conv4", False), ("fine_tuning", "own", False),
    ("reptile", "mlp", False), ("maml++", "linear", False),
}))
def test_an_image_has_one_prediction_whatever_comes_with_it(
    learner, network, public
):
  made, params, support, images = task(learner, network, public)
  predict = jax.jit(made.predict)

  def probabilities(images):
    return np.asarray(jax.nn.softmax(predict(params, support, images)))

  every = images.reshape(-1, *images.shape[2:])
  among = probabilities(every)
  alone = np.concatenate([probabilities(image[None]) for image in every])
  order = np.random.default_rng(1).permutation(len(every))
  shuffled = probabilities(every[order])[np.argsort(order)]
  of_class = np.concatenate([probabilities(one) for one in images])
  for found in (alone, shuffled, of_class):
    np.testing.assert_allclose(found, among, rtol=0, atol=1e-5)
  # The images differ, and so does what is said of them.
  assert among.std(0).max() > 1e-3
  # Together, as a task is trained on, they change one another.
  adapted = made.adapt(params, support)
  together = jax.nn.softmax(made.logits(adapted, every))
  assert (np.abs(together - among).max() > 1e-4) == made.model.mixes_examples


@pytest.mark.parametrize("learner, network, public", bank.cases(
    [case for case in PREDICTIONS if case[1] in bank.CONVOLUTIONS],
    {("protonet", "conv4", True), ("maml", "conv4", False)},
))
def test_a_support_set_that_is_filled_up_predicts_the_same(
    learner, network, public
):
  made, params, support, images = task(learner, network, public)
  n, query = len(support.labels), images.reshape(-1, *images.shape[2:])

  def filled(a, value):
    return np.concatenate([a, np.full((5, *a.shape[1:]), value, a.dtype)])

  larger = episodes.Examples(
      filled(support.images, 7), filled(support.labels, 0),
      np.arange(n + 5) < n,
  )
  found, wanted = (
      jax.nn.softmax(jax.jit(made.predict)(params, examples, query))
      for examples in (larger, support)
  )
  # Sums of other lengths round otherwise, and gradient steps enlarge that.
  np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5)


# One clip unit moves the sum by no more than the sensitivity ------------------


def summed(learner, network, described, public):
  """(images of all units, mask) -> the un-noised sum, in float64."""
  made, (*_, episode) = (
      bank.make(learner, network, public), bank.PLANS[described]
  )
  params, shape = made.init(jax.random.key(0)), bank.NETWORKS[network]
  labels, rows = None, jnp.arange(TASKS * WAY * 2).reshape(TASKS, WAY, 2)
  if episode is None:
    labels = jnp.arange(TASKS) % WAY
    rows = jnp.arange(TASKS).reshape(TASKS, 1, 1)

  @jax.jit
  def run(images, mask):
    tasks = step_lib.StepTasks(images.reshape(-1, *shape), rows, mask, labels)
    return task_sums.sum_tasks(
        made, bank.mechanism(described), params, tasks, jax.random.key(1),
        episode=episode,
    )[0]

  return lambda images, mask: flat(run(np.float32(images), mask))


def is_tried(learner, network, described, public):
  """Convolutions take long: only a learner of each kind has them."""
  if public:  # The public examples take no part in training.
    return (learner, network) == ("protonet", "conv4")
  if described == "layers of tasks":
    return network == "linear"
  if described == "examples" and network == "own":
    return False  # It takes the mean of a batch away: nothing of one example.
  return network not in bank.CONVOLUTIONS or learner in (
      "maml", "protonet", "supervised"
  )


SUMS = [
    case
    for case in itertools.product(
        bank.LEARNERS, bank.NETWORKS, bank.PLANS, (False, True)
    )
    if bank.fits(case[0], case[2]) and is_tried(*case)
]


@pytest.mark.parametrize("learner, network, described, public", bank.cases(
    SUMS, {
        ("maml", "linear", "tasks", False),
        ("meta_sgd", "linear", "layers of tasks", False),
        ("protonet in turns", "features", "tasks", False),
        ("reptile", "own", "tasks", False),
        ("supervised", "mlp", "examples", False),
    },
))
def test_one_clip_unit_moves_the_sum_by_no_more_than_the_sensitivity(
    learner, network, described, public
):
  run = summed(learner, network, described, public)
  rng, shape = np.random.default_rng(0), bank.NETWORKS[network]
  if bank.PLANS[described][2] is not None:
    shape = (WAY, 2, *shape)
  one, two = (
      private.sensitivity(bank.CLIP_NORM, n)
      for n in ("add-or-remove", "replace-one")
  )
  everyone, removed, replaced = np.ones(TASKS, bool), [], []
  for _ in range(20):
    scale = rng.choice([1e-3, 1.0, 30.0, 1e12], TASKS)
    images = rng.standard_normal((TASKS, *shape))
    images *= scale.reshape(-1, *[1] * len(shape))
    before, i = run(images, everyone), rng.integers(TASKS)
    removed.append(np.linalg.norm(run(images, np.arange(TASKS) != i) - before))
    # By another unit, its own opposite or one that is not finite.
    for other in (rng.standard_normal(shape), -images[i], np.nan):
      images[i] = other
      replaced.append(np.linalg.norm(run(images, everyone) - before))
  assert max(removed) <= one * (1 + 1e-5)
  assert one < max(replaced) <= two * (1 + 1e-5)
  # Layers of a small gradient stay below their shares.
  assert max(removed) > (0.99 if "layers" not in described else 0.5) * one


# The gradient is that of a plain loop over the equations ----------------------

_NORMS = {"per_step_norm": True, "learned_rates": True}
SWITCHES = [
    {}, {"learned_rates": True}, {"loss_weights": (0.2, 0.3, 0.5)},
    _NORMS | {"loss_weights": (0.5, 0.1, 0.4)}, {"per_step_norm": True},
]
PLAIN = [
    *(
        learners.MAML(
            tiny.normalising_model() if "per_step_norm" in switches
            else tiny.model(),
            inner_steps=3, inner_rate=0.4, **switches,
        )
        for switches in SWITCHES
    ),
    learners.ANIL(tiny.model(), inner_steps=3, inner_rate=0.4),
    learners.MetaSGD(tiny.model(), inner_steps=3),
    learners.ProtoNet(tiny.model(out=5), way=WAY, scale=0.5),
    *(
        learners.RidgeHead(
            tiny.model(out=features), way=WAY, ridge=0.5, scale=3.0
        )
        for features in (2, 8)
    ),
]


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("learner", PLAIN, ids=lambda x: type(x).__name__)
@pytest.mark.few(12)
def test_loss_and_gradient_are_those_of_the_plain_loop(
    learner, loops, monkeypatch
):
  chosen = backends.choices()._replace(loops=loops)
  monkeypatch.setattr(backends, "choices", lambda: chosen)
  episode, rng = tiny.episode(), np.random.default_rng(0)
  params = jax.tree.map(  # So that no step is like another.
      lambda p: np.asarray(p) + 0.1 * rng.standard_normal(p.shape),
      learner.init(jax.random.key(0)),
  )
  tiny.assert_gradient(
      lambda p: learner.loss(p, episode),
      lambda p: tiny.plain_loss(learner, p, episode),
      params,
  )


# Noise falls on the parts of a network that are trained, alone ----------------

DATA = fake_dataset.FakeDataset(
    images=np.random.default_rng(0)
    .standard_normal((6 * WAY * 2, 2, 2, 1))
    .astype(np.float32),
    hierarchy=plans.tree("participant class image", 6, WAY, 2),
)


# All others take the same way through the step as the ridge head.
@pytest.mark.parametrize(
    "name", ["ridge", *(name for name in bank.LEARNERS if name != "ridge")]
)
@pytest.mark.few(1)
def test_what_is_frozen_is_neither_clipped_nor_noised(name):
  chosen = bank.LEARNERS[name]
  model = fake_network.layered(
      head=chosen.adaptation != options.CLOSED_FORM
  )
  start = jax.tree.map(
      np.asarray, parts.by_name(model.init(jax.random.key(3)))
  )
  model = models.start_from(model, start, trained="scale_shift")
  learner = naming.make_learner(chosen, model, way=WAY)
  data, clip_unit, units = DATA, "participant", 2
  described = plans.sampling(2, WAY, 2, way=WAY, shot=1, query=1)
  if name == options.SUPERVISED:
    data = fake_dataset.FakeDataset(
        images=DATA.images,
        hierarchy=plans.tree("image", 36),
        labels=np.arange(36, dtype=np.int32) % WAY,
    )
    units, clip_unit = 4, "image"
    described = plans.sampling(units)
  mechanism = plan.Mechanism(clip_unit=clip_unit, noise_multiplier=3.0)
  optimizer = optax.sgd(1.0)
  key = private.secret_key(bytes(8))  # The norm of noise is a random number.
  state = private.init(key, learner, optimizer, mechanism)
  before = flat(state.params)
  step = private.make_meta_step(
      learner, optimizer, data, plan.Release(data.hierarchy, described,
                                             mechanism)
  )
  state, metrics = step(state)
  # Noise falls on every number that is trained.
  assert (before != flat(state.params)).all()
  # Its norm is that of the released numbers and one more clipped sum.
  expected = 3.0 / units * np.sqrt(before.size)
  assert 0.5 * expected < float(metrics["update_norm"]) < 1.5 * expected + 1
  network = state.params.get("model", state.params)
  if chosen.per_step_norm:  # Norms of the last step.
    network["norm"] = {k: v[-1] for k, v in network["norm"].items()}
  whole = parts.by_name(model.whole(network))
  np.testing.assert_array_equal(whole["hidden/kernel"], start["hidden/kernel"])
  assert (whole["norm/scale"] != start["norm/scale"]).any()


# A learner is its module, and a line in the registry --------------------------

RUN = (
    "--config=glyphs:participants=4,rate=0.3,size=12,steps=2",
    "--config.hierarchy.sizes=(4,8,6)", "--config.data.options.drawings=6",
    "--config.data.options.validation_participants=3",
    "--config.data.options.test_participants=5", "--config.model.name=mlp",
    "--config.model.widths=(8,)", "--config.evaluation.validation_tasks=8",
    "--config.evaluation.test_tasks=8", "--config.evaluation.query=2",
)


def test_a_line_in_the_registry_trains_exports_and_documents_a_learner(
    call, monkeypatch, tmp_path
):
  with pytest.raises(plan.PlanError, match="name='sign'.*'maml', 'anil', "):
    tiny_runs.maml_config().replace({"learner.name": "sign"})
  entry = options.Registered("tests.learners.bank:Sign", options.STEPS)
  monkeypatch.setitem(options.LEARNERS, "sign", entry)
  done = call(
      "train", *RUN, "--config.learner.name=sign",
      "--config.learner.inner_rate=0.25", f"--workdir={tmp_path / 'run'}",
  )
  assert done.returncode == 0, done.stderr
  done = call(
      "export", f"--workdir={tmp_path / 'run'}", f"--out={tmp_path / 'model'}"
  )
  assert done.returncode == 0, done.stderr
  model = export.Predictor.load(tmp_path / "model")
  assert model.description.learner.inner_rate == 0.25
  images = np.random.default_rng(0).integers(0, 256, (10, 12, 12, 1), np.uint8)
  found = model.adapt(images, [i // 2 for i in range(10)]).predict(images)
  assert found.probabilities.shape == (10, 5)
  (_, words, *_), *_ = reference.fields(options.LearnerOptions)
  assert words.endswith("supervised, sign")
  assert "| Sign | these tests | all weights" in (
      pages.descriptions().markdown()
  )
