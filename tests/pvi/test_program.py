"""Runs: resumed after a kill, stopped before the budget, clients that leave."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import pvi
from episodic_dp import training
from episodic_dp.pvi import federation as federation_lib
from episodic_dp.pvi import tables
from tests import plans
from tests.pvi import problems
from tests.pvi import tiny_run
from tests.refusals import assert_refused
from tests.stored import json_of

# One visit at a time is another program, which the slow tests compile.
SERVERS = (
    "synchronous",
    *(
        pytest.param(s, marks=pytest.mark.slow)
        for s in federation_lib.SERVERS[1:]
    ),
)


@pytest.fixture(scope="module")
def federation():
  return federation_lib.Federation(tiny_run.spec(1))


def _same(a, b):
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_array_equal(x, y)


def _killed(folder, step, **options):
  """Run until a round that is not saved."""

  def kill(line):
    if line["step"] == step:
      raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    pvi.run(workdir=folder, callbacks=[kill], **options)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, federation, server):
  spec = tiny_run.spec(5, server=server)
  options = dict(spec=spec, federation=federation)
  whole = pvi.run(workdir=tmp_path / "whole", **options)
  _killed(tmp_path / "parts", 4, **options)
  parts = pvi.run(workdir=tmp_path / "parts", **options)
  assert parts.rounds == 5 and parts.stopped == "done"
  _same(whole.posterior, parts.posterior)
  assert whole.visits == parts.visits
  if server != "asynchronous":
    assert parts.visits == (5, 5, 5, 5)
  lines = [
      (tmp_path / name / "metrics.jsonl").read_text()
      for name in ("parts", "whole")
  ]
  assert lines[0] == lines[1] and lines[0].count("\n") == 6
  assert problems.least(whole.posterior.natural.precision) > 0


@pytest.mark.slow  # Compiles rounds three times.
def test_whole_clients_have_one_guarantee_and_a_resumed_run_the_same_bits(
    tmp_path,
):
  spec = tiny_run.client_level(5)
  whole = pvi.run(spec, tmp_path / "whole")
  _killed(tmp_path / "parts", 4, spec=spec)
  parts = pvi.run(spec, tmp_path / "parts")
  _same(whole.posterior, parts.posterior)
  assert parts.visits == (5,) and parts.stopped == "done"
  expected = accounting.guarantee(
      spec.releases[0], steps=5, delta=0.01, level="client"
  )
  assert parts.guarantees[0].epsilon == expected.epsilon
  assert parts.guarantees[0].neighbours == "add or remove one client"
  folder = tmp_path / "parts"
  summary = json_of(folder / "guarantees.json")
  assert summary["every_client"]["epsilon"] == expected.epsilon
  (row,) = summary["clients"]
  statement = json_of(folder / row["statement"])
  assert not accounting.verify(statement).differences
  # The posterior is readable, and nothing else of the clients is.
  found = json_of(folder / "posterior.json")
  q = whole.posterior.natural
  problems.check_close(
      [found["mean"], found["variance"]],
      jax.tree.map(lambda a: a.tolist(), [q.mean, q.variance]),
  )
  assert problems.least(q.precision) >= 1
  assert (folder / "private").stat().st_mode & 0o077 == 0
  shown = [p for p in folder.rglob("*") if "private" not in p.parts]
  assert not [p for p in shown if p.suffix == ".npz"]
  for path in shown:
    if path.suffix in (".json", ".jsonl"):
      assert '"c1"' not in path.read_text()


def test_rounds_without_noise_find_the_posterior_of_the_clients(tmp_path):
  changes = dict(damping=0.25, local_steps=20)
  spec = tiny_run.client_level(20, share=1, noise=0.0, **changes)
  release = federation_lib.round_release(
      4, share=1, clip_norm=float("inf"), noise_multiplier=0.0
  )
  spec = dataclasses.replace(spec, releases=(release,))
  found = pvi.run(spec, tmp_path / "rounds").posterior.natural
  inputs = np.concatenate([m.images[:, 0, 0] for m in spec.clients])
  labels = np.concatenate([m.labels for m in spec.clients])
  joined = pvi.make_clients(inputs, labels, {"all": np.arange(len(labels))})
  alone = dataclasses.replace(
      spec, clients=joined, damping=1.0,
      releases=(dataclasses.replace(
          release, hierarchy=plans.tree("client", 1)
      ),),
  )
  expected = pvi.run(alone, tmp_path / "alone").posterior.natural
  problems.check_close(found.mean, expected.mean, atol=0.1)
  problems.check_close(found.variance, expected.variance, rtol=0.2)


def assert_run_refused(match, *arguments, **options):
  """Require one sentence that says what is wrong."""
  assert_refused(training.RunError, match, pvi.run, *arguments, **options)


def test_a_fork_of_rounds_pays_again_and_other_data_are_refused(tmp_path):
  spec = tiny_run.client_level(6)
  _killed(tmp_path, 5, spec=spec)
  changed = dataclasses.replace(spec, config={"version": 2})
  assert pvi.run(changed, tmp_path, resume="fork").visits == (8,)
  assert_run_refused(
      "differs in release", tiny_run.client_level(6, share=0.4), tmp_path
  )


def test_statements_are_of_all_rounds_until_a_run_ends(tmp_path):
  """A kill may come after any of them."""
  spec = tiny_run.client_level(3)
  pvi.run(spec, tmp_path, deadline=0.0)  # Ends before the first round.
  _killed(tmp_path, 2, spec=spec)
  (row,) = json_of(tmp_path / "guarantees.json")["clients"]
  assert row["rounds"] == 3
  assert json_of(tmp_path / row["statement"])["steps"] == 3


def test_rounds_that_call_the_host_are_refused_before_a_key_is_made(tmp_path):

  class Printing(pvi.LogisticRegression):

    def expected(self, *arguments):
      jax.debug.print("called")
      return super().expected(*arguments)

  model = Printing(2)
  learner = pvi.VariationalLearner(model, model.prior(1.0))
  folder = tmp_path / "run"
  assert_run_refused(
      "calls Python", tiny_run.client_level(2, learner=learner), folder
  )
  assert not folder.exists()


def test_nothing_shows_a_key_or_a_row(federation):
  spec, key = tiny_run.client_level(1), private.secret_key(b"abcdefgh")
  rounds = federation_lib.WholeClients(spec)
  (memory,) = rounds.begin(key)
  _, state, _ = rounds._arguments(rounds.start(), memory)
  inputs, labels = problems.classification(40)
  table = tables.Table(inputs=inputs, labels=labels, members={})
  secrets = jax.random.key_data(key).tolist()
  for shown in (memory, state._replace(released=None), *federation.groups):
    assert "rray" not in repr(shown)
    assert not any(str(word) in repr(shown) for word in secrets)
  assert repr(table) == "Table(members={})"


def test_rounds_without_a_proof_or_a_private_place_are_refused(tmp_path):
  with pytest.raises(plan.UnsoundPlanError, match="server='synchronous'"):
    tiny_run.client_level(2, server="sequential")
  with pytest.raises(plan.PlanError, match="target_epsilon=0.01 is exceeded"):
    tiny_run.client_level(2, epsilon=0.01)
  place = "gs://bucket/run"
  assert_run_refused(
      "on this machine", tiny_run.client_level(2), place,
      key_file=tmp_path / "key",
  )


@pytest.mark.slow
def test_a_fork_pays_for_rounds_that_may_have_been_released(
    tmp_path, federation
):
  options = dict(federation=federation)
  spec = tiny_run.spec(6)
  _killed(tmp_path, 5, spec=spec, **options)
  changed = tiny_run.spec(6, config={"version": 2})
  assert_run_refused("version=2.*--resume=fork", changed, tmp_path, **options)
  result = pvi.run(changed, tmp_path, resume="fork", **options)
  # Rounds 5 and 6 again.
  assert (result.rounds, result.visits) == (6, (8, 8, 8, 8))


@pytest.mark.slow
def test_a_stop_before_the_rounds_of_a_kill_states_them_too(
    tmp_path, federation
):
  spec = tiny_run.spec(6)
  _killed(tmp_path, 5, spec=spec, federation=federation)
  # Round 5 was released behind the checkpoint of round 4, and 6 allowed.
  stopped = pvi.run(spec, tmp_path, federation=federation, deadline=0.0)
  assert (stopped.rounds, stopped.visits) == (4, (6, 6, 6, 6))
  stated = json_of(tmp_path / "guarantees.json")
  assert [row["visits"] for row in stated["clients"]] == [6, 6, 6, 6]


def test_nothing_but_the_secret_key_drives_noise(tmp_path, federation):
  a, b = (
      pvi.run(
          tiny_run.spec(1, private_seed=seed), tmp_path / str(seed),
          federation=federation,
      )
      for seed in (1, 2)
  )
  gaps = jax.tree.map(
      lambda x, y: np.abs(x - y).max(), a.posterior.natural, b.posterior.natural
  )
  assert max(jax.tree.leaves(gaps)) > 1e-3
  assert_run_refused(
      "private_seed", tiny_run.spec(2, private_seed=2), tmp_path / "1",
      federation=federation,
  )


def test_other_data_under_the_same_key_are_refused(tmp_path, federation):
  pvi.run(tiny_run.spec(1), tmp_path, federation=federation)
  other = list(tiny_run.members())
  other[0] = dataclasses.replace(other[0], images=other[0].images + 1)
  assert_run_refused(
      "differs in data", tiny_run.spec(2, clients=tuple(other)), tmp_path
  )
  assert_run_refused(
      "differs in release", tiny_run.spec(2, damping=0.5), tmp_path,
      federation=federation,
  )


def test_another_budget_under_the_same_key_is_refused(tmp_path, federation):
  """Later rounds would see other clients, with the noise of the first time."""
  options = dict(federation=federation, deadline=0.0)
  changes = dict(epsilon=2.5, config={})
  pvi.run(tiny_run.spec(8, **changes), tmp_path, **options)
  deltas = (0.01, 0.001, 0.01, 0.01)
  other = tiny_run.spec(8, deltas=deltas, **changes)
  match = r"budget=\[7, 4, 7, 7\] visits \(it was \[7, 7, 7, 7\].*fork"
  assert_run_refused(match, other, tmp_path, **options)


def test_every_client_stops_before_its_budget_would_be_passed(
    tmp_path, federation
):
  epsilon = 4.0
  spec = tiny_run.spec(50, epsilon=epsilon)
  result = pvi.run(spec, tmp_path, federation=federation)
  assert result.stopped == "budget"
  for client, visits in enumerate(result.visits):
    release, delta = spec.releases[client], spec.deltas[client]

    def reached(visits, release=release, delta=delta):
      return accounting.guarantee(
          release, steps=visits * tiny_run.LOCAL_STEPS, delta=delta,
          level="example",
      ).epsilon

    assert 0 < reached(visits) <= epsilon < reached(visits + 1)
    assert result.guarantees[client].epsilon == reached(visits)
  # In the file, and at every round of the way.
  summary = json_of(tmp_path / "guarantees.json")
  assert summary["every_example"]["epsilon"] == max(
      guarantee.epsilon for guarantee in result.guarantees
  )
  lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
  spent = [json.loads(line)["epsilon"] for line in lines]
  assert max(spent) <= epsilon and spent == sorted(spent)
  # A statement that verifies, for every client.
  for row in summary["clients"]:
    text = (tmp_path / row["statement"]).read_text()
    verified = accounting.verify(json.loads(text))
    assert not verified.differences
    stated = json.loads(text)["guarantees"]["example"]["epsilon"]
    assert stated == row["guarantee"]["epsilon"]
  # It does not continue when asked to; with more budget it does.
  again = pvi.run(spec, tmp_path, federation=federation)
  assert again.rounds == result.rounds
  _same(again.posterior, result.posterior)
  more, less = (
      pvi.run(
          tiny_run.spec(50, epsilon=factor * epsilon), tmp_path,
          federation=federation, resume="fork",
      )
      for factor in (1.2, 1.0)
  )
  assert result.rounds < more.rounds == less.rounds


def test_a_budget_that_allows_no_visit_is_refused_before_anything(tmp_path):
  match = "target_epsilon=0.01 is exceeded .* set target_epsilon="
  with pytest.raises(plan.PlanError, match=match) as refused:
    pvi.run(tiny_run.spec(5, epsilon=0.01), tmp_path / "new")
  most = float(str(refused.value).rpartition("=")[2])
  visits = tiny_run.spec(5, epsilon=most).most_visits
  assert all(1 <= of_client for of_client in visits) and 1 in visits
  assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(damping=0.0), "damping=0.0"),
        (dict(server="random"), "server='random'"),
        (dict(checkpoint_every=0), "checkpoint_every=0: expected"),
    ],
)
def test_bad_values_are_named(change, words):
  assert_refused(ValueError, words, tiny_run.spec, 1, **change)
