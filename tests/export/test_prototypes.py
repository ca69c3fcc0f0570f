"""Noised prototypes: what one unit can change, what it costs, what is kept."""

import collections
import dataclasses
import json
import math
import pickle
from unittest import mock

import dp_accounting
from dp_accounting import pld
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from episodic_dp import accounting
from episodic_dp import auditing
from episodic_dp import errors
from episodic_dp import export
from episodic_dp import plan
from episodic_dp.accounting import ledger
from episodic_dp.accounting import report
from episodic_dp.data import public
from episodic_dp.export import folder
from episodic_dp.export import preprocessing
from episodic_dp.export import prototypes
from tests.cli import tiny_runs
from tests.export.conftest import export_run
from tests.refusals import assert_refused

WAY, DRAWINGS = 4, 6
RELATIONS = report.RELATIONS
NOTHING = np.zeros((2, 1, 3))  # A sum of no images.
# What a network may make of an image, in float32.
SCALES = (0, 1e-45, 1e-30, 1.0, 1e20, 3e38, np.inf, np.nan)


def hostile(rng, n):
  """Two embeddings each, of all lengths, some not finite, and a centre."""
  found = rng.standard_normal((n, 2, 3))
  found /= np.abs(found).max(axis=-1, keepdims=True)
  with np.errstate(all="ignore"):
    found *= rng.choice(SCALES, (n, 2, 1))
    found[rng.random(found.shape) < 0.05] = rng.choice(SCALES)
    found = found.astype(np.float32)
  centre = rng.choice([0, 1, 1e30]) * rng.standard_normal((2, 3))
  return found, centre.astype(np.float32)


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(st.integers(0, 2**32), st.booleans())
def test_one_unit_moves_the_sum_by_its_clip_norm_at_most(seed, by_person):
  rng = np.random.default_rng(seed)
  n = int(rng.integers(2, 20))
  found, centre = hostile(rng, n)
  others, _ = hostile(rng, n)
  classes = rng.integers(0, WAY, n)
  units = rng.integers(0, 4, n) if by_person else np.arange(n)
  own = units == units[0]

  def total(embedded, kept, labels=classes):
    return prototypes.clipped_sum(
        prototypes.directions(embedded, centre)[kept], labels[kept],
        units[kept], WAY,
    )

  whole = total(found, np.full(n, True))
  assert np.isfinite(whole).all()
  moved = np.linalg.norm(whole - total(found, ~own))
  assert moved <= prototypes.CLIP_NORM * (1 + 1e-12)
  # Other images, and of other classes.
  replaced = np.where(own[:, None, None], others, found)
  changed = np.where(own, rng.integers(0, WAY, n), classes)
  moved = np.linalg.norm(whole - total(replaced, np.full(n, True), changed))
  assert moved <= 2 * prototypes.CLIP_NORM * (1 + 1e-12)


def test_the_bounds_are_attained():
  """By one image, by a person of all classes, and by opposite images."""
  ends = np.array([[[1e-30, 0.0]], [[3e38, 0.0]], [[-1.0, 0.0]]], np.float32)
  found = prototypes.directions(ends, np.zeros((1, 2), np.float32))
  np.testing.assert_array_equal(found[:, 0, 0], [1, 1, -1])
  one = prototypes.contribution(found[:1], np.array([2]), WAY)
  assert np.linalg.norm(one) == prototypes.CLIP_NORM
  opposite = prototypes.contribution(found[2:], np.array([2]), WAY)
  assert np.linalg.norm(one - opposite) == 2 * prototypes.CLIP_NORM
  many = prototypes.contribution(
      found[[0, 1, 0, 1]], np.arange(WAY), WAY
  )
  assert np.linalg.norm(many) == pytest.approx(prototypes.CLIP_NORM, rel=1e-15)


def release(total, **changed):
  """The release of a sum with one checkpoint, for 1000 people."""
  terms = dict(
      units=1000, level="person", epsilon=1.0, delta=1e-5,
      neighbours="add-or-remove", private_seed=None,
  )
  return prototypes.release(
      total, np.zeros((1, total.shape[2]), np.float32),
      [*map(str, range(len(total)))], **terms | changed,
  )


def multiplier(released):
  (entry,) = accounting.Ledger.from_dict(released.statement).entries
  return entry.release.mechanism.noise_multiplier


def gaussian_delta(epsilon, distance):
  """Theorem 8 of Balle and Wang, for a sum that moves by `distance` sigma."""
  a, b = distance / 2 - epsilon / distance, -distance / 2 - epsilon / distance
  return scipy.stats.norm.cdf(a) - math.exp(epsilon) * scipy.stats.norm.cdf(b)


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_epsilon_is_that_of_the_exact_gaussian_curve(epsilon, neighbours):
  found = release(NOTHING, epsilon=epsilon, neighbours=neighbours)
  z, stated = multiplier(found), found.guarantee.epsilon
  distance = (1 + (neighbours == "replace-one")) / z
  exact = scipy.optimize.brentq(
      lambda e: gaussian_delta(e, distance) - 1e-5, 0, 100, xtol=1e-12
  )
  assert exact <= stated <= exact * (1 + 1e-6)
  assert 0.99 * epsilon <= stated <= epsilon
  theirs = pld.PLDAccountant().compose(
      dp_accounting.GaussianDpEvent(1 / distance)
  )
  assert stated == pytest.approx(theirs.get_epsilon(1e-5), rel=2e-3)
  # The classical bound is not used.
  assert z < (1 + (neighbours == "replace-one")) * (
      math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
  )


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_noise_has_the_stated_deviation(neighbours):
  """Measured on the prototypes: one known coordinate gives their length."""
  total, known = np.zeros((2, 1, 20_001)), 1e6
  total[:, 0, 0] = known
  found = release(total, neighbours=neighbours)
  noise = found.prototypes[:, 0, 1:].astype(float)
  noise *= known / found.prototypes[:, :, 0]
  z = multiplier(found)
  moved = 1 + (neighbours == "replace-one")
  assert z == pytest.approx(3.74 * moved, rel=0.01)
  measured = noise.ravel() / z
  assert scipy.stats.kstest(measured, "norm").pvalue > 1e-6
  # The same test finds noise of nine tenths, and noise that repeats.
  assert scipy.stats.kstest(0.9 * measured, "norm").pvalue < 1e-6
  assert abs(np.corrcoef(noise)[0, 1]) < 0.05


def test_a_large_sum_is_not_rounded_before_the_noise():
  """Of 10^7 units alike one would move it by 0 or 1 in place of 0.5."""
  total = np.full((2, 1, 2001), 1e7)
  stddev, seed = 1e7, 3
  moved = prototypes._noised(total + 0.5, stddev, seed).astype(float)
  moved -= prototypes._noised(total, stddev, seed)
  exact = prototypes._noised(0 * total, stddev, seed).astype(float)
  assert 0.45 < moved[np.abs(total + exact) < 2e6].mean() < 0.55


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_an_attack_measures_nearly_the_claim(neighbours, monkeypatch):
  """Each coordinate has its own noise, as in a run of its own."""
  known, runs = 1e6, 200_000
  before = -1.0 if neighbours == "replace-one" else 0.0

  def scores(moved):
    total = np.full((2, 1, runs + 1), moved)
    total[:, 0, 0] = known
    found = release(total, delta=0.02, neighbours=neighbours)
    (kept,) = found.prototypes[:1, 0].astype(float)
    return kept[1:] / kept[0] * known, found.guarantee.epsilon

  def measured():
    (present, claim), (absent, _) = scores(1.0), scores(before)
    bound = auditing.measure_epsilon(
        present, absent, delta=0.02, confidence=1 - 1e-6
    )
    return bound.epsilon / claim

  assert 0.75 <= measured() <= 1
  noised = prototypes._noised
  monkeypatch.setattr(
      prototypes, "_noised", lambda t, stddev, key: noised(t, 0.8 * stddev, key)
  )
  assert measured() > 1


def test_the_key_is_new_every_time_unless_a_seed_says_so():
  first, second = release(NOTHING), release(NOTHING)
  assert not np.array_equal(first.prototypes, second.prototypes)
  assert first.statement["lineage"] != second.statement["lineage"]
  assert not first.statement["fixed_seed"]
  seeded = [release(NOTHING, private_seed=s) for s in (3, 3, 4)]
  np.testing.assert_array_equal(seeded[0].prototypes, seeded[1].prototypes)
  assert not np.array_equal(seeded[0].prototypes, seeded[2].prototypes)
  assert report.SEEDED in seeded[0].guarantee.caveat


def test_the_statement_says_what_is_assumed():
  found = release(NOTHING, delta=None)
  assert found.guarantee.delta == 1e-5  # Below 1 / 10 000.
  assert {*report.ADAPTED} <= {*found.guarantee.assumptions}
  assert report.ONE_ADAPTATION in found.guarantee.caveat
  data = json.loads(json.dumps(found.statement))
  assert not accounting.verify(data).differences
  large = release(NOTHING, delta=1e-3)
  assert "at least 1 / 1000" in large.guarantee.caveat
  less = data | {"classes": None}
  assert accounting.verify(less).differences
  data["guarantees"]["person"]["epsilon"] *= 0.9
  assert accounting.verify(data).differences[0].false


def test_two_adaptations_are_two_releases():
  first, second = release(NOTHING), release(NOTHING, units=500)
  statements = {"a": first.statement, "b": second.statement}
  both = ledger.compose(statements, same_levels=["person"])
  found = both.guarantee("person", delta=1e-5)
  mu = math.hypot(1 / multiplier(first), 1 / multiplier(second))
  exact = scipy.optimize.brentq(
      lambda e: gaussian_delta(e, mu) - 1e-5, 0, 100, xtol=1e-12
  )
  assert exact * (1 - 1e-9) <= found.epsilon <= exact * 1.001
  for sentence in report.ADAPTED:
    assert f"a: {sentence}" in found.assumptions
  copies = {"a": first.statement, "b": first.statement}
  with pytest.raises(errors.PlanError, match="of one run"):
    ledger.compose(copies, same_levels=["person"])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
  """A folder of a model of prototypes."""
  root = tmp_path_factory.mktemp("prototypes")
  config = tiny_runs.maml_config().replace({"learner.name": "protonet"})
  return export_run(config, root, tiny_runs.splits())


@pytest.fixture(scope="module")
def model(exported):
  return export.Predictor.load(exported)


def support(people=3):
  """Images of WAY glyphs by each of some writers, classes and people."""
  images = tiny_runs.splits().test.images
  images = images.reshape(5, 8, DRAWINGS, *images.shape[1:])[:people, :WAY]
  labels = np.broadcast_to(np.arange(WAY)[:, None], images.shape[:3])
  owners = np.broadcast_to(
      np.arange(people)[:, None, None], images.shape[:3]
  )
  return images.reshape(-1, 12, 12, 1), labels.ravel(), owners.ravel()


def test_what_is_kept_is_saved_and_read_alike(exported, model, tmp_path):
  images, labels, people = support()
  terms = dict(delta=1e-5, public=images[::7])
  adapted = model.adapt(images, labels, people, epsilon=2.0, **terms)
  assert adapted.guarantee.level == "person" and model.adapted is None
  assert 1.98 < adapted.guarantee.epsilon <= 2
  wanted = adapted.predict(images).probabilities
  np.testing.assert_allclose(wanted.sum(-1), 1, atol=1e-5)
  alone = adapted.predict(images[:1]).probabilities
  np.testing.assert_allclose(alone, wanted[:1], atol=1e-5)
  copy = pickle.loads(pickle.dumps(adapted))
  adapted.save(tmp_path / "adapted")
  loaded = export.Predictor.load(tmp_path / "adapted")
  for other in (copy, loaded.adapted):
    assert other.classes == (0, 1, 2, 3)
    np.testing.assert_array_equal(other.predict(images).probabilities, wanted)
  # Beside the model, two files: prototypes with a centre, and a statement.
  before, after = ({p.name for p in f.iterdir()} for f in
                   (exported, tmp_path / "adapted"))
  assert after - before == {folder.ADAPTATION, folder.PROTOTYPES}
  assert adapted.released.prototypes.shape == (WAY, 1, model.network.way)
  assert loaded.statement == model.statement
  card = (tmp_path / "adapted" / folder.CARD).read_text()
  assert "| participant | " in card and "| person | " in card
  # Adapted again, it has one adaptation, not two.
  again = loaded.adapt(images, labels, people, epsilon=1.0, **terms)
  text = again.predictor.contents[folder.CARD].decode()
  assert text.count("| person |") == 1 and "0.99" in text


@pytest.mark.parametrize("learner", ["protonet", "ridge"])
def test_without_noise_the_nearest_direction_wins(learner, tmp_path):
  """With epsilon of a million, and two checkpoints of other weights."""
  config = tiny_runs.maml_config().replace({"learner.name": learner})
  place = export_run(config, tmp_path, tiny_runs.splits())
  model = export.Predictor.load(place)
  model = dataclasses.replace(model, members=model.members * 2)
  images, labels, _ = support()
  known = images[::5]
  adapted = model.adapt(
      images, labels, epsilon=1e6, public=known, neighbours="replace-one"
  )
  assert adapted.guarantee.level == "example"
  embedded = model.embedded(images.astype(np.float32) / 255)
  centre = embedded[::5].mean(0)
  units = embedded[:, 0] - centre[0]
  units /= np.linalg.norm(units, axis=-1, keepdims=True)
  means = np.stack([units[labels == c].sum(0) for c in range(WAY)])
  means /= np.linalg.norm(means, axis=-1, keepdims=True)
  found = adapted.predict(images)
  np.testing.assert_array_equal(found.labels, (units @ means.T).argmax(-1))
  # A public class without images has a prototype too.
  more = model.adapt(
      images, labels, epsilon=1e6, public=known, classes=range(WAY + 1)
  )
  assert more.predict(images[:2]).probabilities.shape == (2, WAY + 1)


def test_a_person_moves_what_is_noised_by_the_clip_norm(model):
  """From images to the noise, in another order and another block."""
  images, labels, people = support()
  terms = dict(classes=[*range(WAY)], public=images[::7], epsilon=1.0)

  def total(kept):
    patched = mock.patch.object(prototypes, "_noised", side_effect=KeyError)
    with patched as found:
      with pytest.raises(KeyError):
        model.adapt(images[kept], labels[kept], people[kept], **terms)
    return found.call_args.args[0]

  whole = total(np.argsort(-people, kind="stable"))
  for person in range(3):
    moved = np.linalg.norm(whole - total(people != person))
    assert 0.5 < moved <= prototypes.CLIP_NORM * (1 + 1e-5)


@pytest.mark.parametrize("value", [True, np.uint16(900), 0.5])
def test_an_image_moves_no_other_by_its_type(value):
  """One type for all would make 7 of 255 another value."""
  images = [np.full((2, 2), one) for one in (np.uint8(7), value)]
  for many in (images, collections.deque(images)):
    first, second = preprocessing.given(many)
    assert first.dtype == np.uint8 and second.dtype == images[1].dtype


def test_features_move_no_others_by_their_type():
  """As float64 the first would be halfway between two float32."""
  first = np.array([2**60 + 2**36 + 1, 1])
  alone = np.asarray(preprocessing.given([first, first]), np.float32)
  found = preprocessing.given([first, [1, 0.5]])
  np.testing.assert_array_equal(found[0], alone[0], strict=True)
  with pytest.raises(errors.DataError, match="row 1 of the examples is <U1"):
    preprocessing.given([first, ["a", "b"]])


@pytest.mark.slow  # Compiles the generator.
def test_generated_images_are_the_centre_unless_others_are_given(model):
  images, labels, people = support()
  adapted = model.adapt(images, labels, people, epsilon=1.0)
  wanted = model.embedded(public.examples(None, (12, 12, 1))).mean(0)
  np.testing.assert_allclose(adapted.released.centre, wanted, rtol=1e-5)


def test_without_a_proof_there_is_no_adaptation(run, model):
  images, labels, people = support()

  def refused(error, match, *given, using=model, **terms):
    assert_refused(
        error, match, using.adapt, *given, **{"epsilon": 1.0} | terms
    )

  unsound = plan.UnsoundPlanError
  refused(unsound, "maml adapts by gradient steps", images, labels,
          using=export.Predictor.load(run.model))
  mixing = dataclasses.replace(
      model, network=model.network._replace(mixes_examples=True),
      description=dataclasses.replace(model.description, moments=False),
  )
  refused(unsound, "normalises by the support", images, labels, using=mixing)
  alone = np.where(people == 1, labels + 10, labels)
  refused(unsound, "class 10 is that of one person", images, alone, people)
  named = dict(classes=[*range(20)], public=images[:2])
  assert model.adapt(images, alone, people, epsilon=1.0, **named).guarantee
  refused(unsound, "class 0 is that of one example", images[::6], labels[::6] +
          10 * np.arange(len(labels[::6])))
  for epsilon in (math.inf, -1.0, 0.0, math.nan):
    refused(errors.PlanError, "epsilon=", images, labels, epsilon=epsilon)
  for delta in (0.0, 1.0, -1e-5):
    refused(errors.PlanError, "delta=", images, labels, delta=delta)
  refused(errors.PlanError, "neighbours=", images, labels, neighbours="x")
  refused(errors.PlanError, "private_seed=", images, labels, private_seed=0.5)
  refused(errors.DataError, "3 people", images, labels, people[:3])
  refused(errors.DataError, "label 3 is not", images, labels, classes=[0, 1, 2])
  for forgotten in ({"people": people}, {"neighbours": "replace-one"}):
    refused(errors.PlanError, "give epsilon", images, labels, epsilon=None,
            **forgotten)
  with pytest.raises(unsound, match="without noise"):
    model.adapt(images, labels).save("nowhere")


def test_a_wrong_folder_is_refused(model, tmp_path):
  images, labels, people = support()
  adapted = model.adapt(images, labels, people, epsilon=1.0, public=images[:2])
  right = adapted.predictor.contents
  statement = json.loads(right[folder.ADAPTATION])
  fewer = statement | {"classes": statement["classes"][:3]}
  lower = json.loads(right[folder.ADAPTATION])
  lower["guarantees"]["person"]["epsilon"] = 0.1
  for name, content, match in (
      (folder.PROTOTYPES, b"", "not safetensors"),
      (folder.ADAPTATION, json.dumps(fewer).encode(), "need finite"),
      (folder.ADAPTATION, json.dumps(lower).encode(), "promises more"),
      (folder.ADAPTATION, right[folder.STATEMENT], "need finite"),
      *((folder.ADAPTATION, json.dumps(statement | {"classes": names}).encode(),
         match) for names, match in (
             (5, "classes of an adaptation"), (list("aabc"), "different names"),
             ([[name] for name in "abcd"], "different names"),
         )),
  ):
    contents = {**right, name: content}
    assert_refused(
        ValueError, match, export.Predictor.of_contents, contents, tmp_path
    )
  # A card is text for people, and may be missing or of any bytes.
  bare = {name: c for name, c in right.items() if name != folder.CARD}
  for contents in (bare, {**right, folder.CARD: b"\xff"}):
    other = export.Predictor.of_contents(contents, tmp_path)
    again = other.adapt(images, labels, epsilon=1.0, public=images[:2])
    assert b"| example |" in again.predictor.contents[folder.CARD]
