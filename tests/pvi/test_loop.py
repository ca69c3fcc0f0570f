"""Runs: resumed after a kill, stopped before the budget, clients that leave."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp import pvi
from episodic_dp import training
from episodic_dp.pvi import loop
from tests.pvi import tiny_run

ROOT = pathlib.Path(__file__).parents[2]
# One visit at a time is another program, which the slow tests compile.
SERVERS = (
    "synchronous",
    *(pytest.param(s, marks=pytest.mark.slow) for s in loop.SERVERS[1:]),
)


@pytest.fixture(scope="module")
def federation():
  return loop.make_federation(tiny_run.spec(1))


def _same(a, b):
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_array_equal(x, y)


@pytest.mark.slow  # Three runs, each in a program of its own.
@pytest.mark.parametrize("server", SERVERS)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, federation, server):
  def go(folder, rounds):
    spec = tiny_run.spec(rounds, server=server)
    return pvi.run(spec, tmp_path / folder, federation=federation)

  whole = go("whole", 5)
  go("parts", 2)
  parts = go("parts", 5)
  assert parts.rounds == 5 and parts.stopped == "done"
  _same(whole.posterior, parts.posterior)
  assert whole.visits == parts.visits
  if server != "asynchronous":
    assert parts.visits == (5, 5, 5, 5)
  lines = (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()
  assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5]
  posterior = whole.posterior
  assert posterior.natural.proper()


def test_nothing_but_the_secret_key_drives_noise(tmp_path, federation):
  a, b = (
      pvi.run(
          tiny_run.spec(1, private_seed=seed), tmp_path / str(seed),
          federation=federation,
      )
      for seed in (1, 2)
  )  # fmt: skip
  gaps = jax.tree.map(
      lambda x, y: np.abs(x - y).max(), a.posterior.natural, b.posterior.natural
  )
  assert max(jax.tree.leaves(gaps)) > 1e-3
  with pytest.raises(training.RunError, match="private_seed"):
    pvi.run(
        tiny_run.spec(2, private_seed=2), tmp_path / "1", federation=federation
    )


def test_other_data_under_the_same_key_are_refused(tmp_path, federation):
  pvi.run(tiny_run.spec(1), tmp_path, federation=federation)
  other = list(tiny_run.members())
  other[0] = pvi.Client(
      name="c0", inputs=other[0].inputs + 1, labels=other[0].labels,
      hierarchy=other[0].hierarchy,
  )  # fmt: skip
  with pytest.raises(training.RunError, match="has other data"):
    pvi.run(tiny_run.spec(2, clients=tuple(other)), tmp_path)
  absent = (pvi.Absence(1),)
  with pytest.raises(training.RunError, match="something else"):
    pvi.run(tiny_run.spec(2, absences=absent), tmp_path, federation=federation)


def test_every_client_stops_before_its_budget_would_be_passed(
    tmp_path, federation, capsys
):
  epsilon = 4.0
  spec = tiny_run.spec(50, epsilon=epsilon)
  result = pvi.run(spec, tmp_path, federation=federation)
  assert result.stopped == "budget"
  # A log says how far it is, of the rounds that the budgets allow.
  rounds = result.rounds
  (first, *_, last) = [
      line for line in capsys.readouterr().err.splitlines()
      if line.startswith("round ")
  ]  # fmt: skip
  assert first.startswith(f"round 1 of {rounds}: epsilon≤")
  assert last.startswith(f"round {rounds} of {rounds}: epsilon≤")
  assert "accuracy " in last
  for client, visits in enumerate(result.visits):
    release, delta = spec.budgets.releases[client], spec.budgets.deltas[client]

    def reached(visits, release=release, delta=delta):
      return accounting.guarantee(
          release, steps=visits * tiny_run.LOCAL_STEPS, delta=delta,
          level="example",
      ).epsilon  # fmt: skip

    assert 0 < reached(visits) <= epsilon < reached(visits + 1)
    assert result.ledgers.epsilon(client) == reached(visits)
  # In the file, and at every round of the way.
  summary = json.loads((tmp_path / "guarantees.json").read_text())
  assert summary["every_example"]["epsilon"] == max(
      result.ledgers.epsilon(m) for m in range(4)
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
  # Asked to go on, it does not; with more budget it does.
  again = pvi.run(spec, tmp_path, federation=federation)
  assert again.rounds == result.rounds
  _same(again.posterior, result.posterior)
  more = pvi.run(
      tiny_run.spec(50, epsilon=1.2 * epsilon), tmp_path, federation=federation
  )
  assert more.rounds > result.rounds
  # What is spent cannot be taken back.
  told = r"visited \d+ times already, and target_epsilon 4 at delta 0.\d+ "
  with pytest.raises(training.RunError, match=told) as refused:
    pvi.run(spec, tmp_path, federation=federation)
  least = float(str(refused.value).rpartition("target_epsilon=")[2])
  worst = max(more.ledgers.epsilon(m) for m in range(4))
  assert worst <= least < 1.001 * worst
  spec = tiny_run.spec(50, epsilon=least)
  assert pvi.run(spec, tmp_path, federation=federation).rounds == more.rounds


def test_a_budget_that_allows_no_visit_is_refused_before_anything(tmp_path):
  told = "target_epsilon 0.01 is passed .* --config.target_epsilon="
  with pytest.raises(plan.PlanError, match=told) as refused:
    pvi.run(tiny_run.spec(5, epsilon=0.01), tmp_path / "new")
  most = float(str(refused.value).rpartition("=")[2])
  visits = tiny_run.spec(5, epsilon=most).budgets.most_visits
  assert all(1 <= of_client for of_client in visits) and 1 in visits
  assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("server", SERVERS[:2])
def test_absent_clients_spend_nothing_and_may_return(
    tmp_path, federation, server
):
  absences = (
      pvi.Absence(0), pvi.Absence(1, 2, 3), pvi.Absence(2, first=4),
  )  # fmt: skip
  result = pvi.run(
      tiny_run.spec(5, absences=absences, server=server), tmp_path,
      federation=federation,
  )  # fmt: skip
  assert result.visits == (0, 3, 3, 5)  # Never; two rounds away; left.
  zeros = jax.tree.leaves(result.posterior.factor(0).natural)
  assert all((leaf == 0).all() for leaf in zeros)
  summary = json.loads((tmp_path / "guarantees.json").read_text())
  assert "guarantee" not in summary["clients"][0]
  steps = [
      row["guarantee"]["steps"] for row in summary["clients"][1:]
  ]
  assert steps == [6, 6, 10]
  assert (tmp_path / "guarantees" / "client_1.json").exists()
  assert not (tmp_path / "guarantees" / "client_0.json").exists()


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(damping=0.0), "damping=0.0"),
        (dict(server="random"), "server='random'"),
        (dict(absences=(pvi.Absence(7),)), "client 7"),
        (dict(checkpoint_every=0), "set --config.checkpoint_every=1 or more"),
    ],
)
def test_bad_values_are_named(change, words):
  with pytest.raises(training.RunError, match=words):
    tiny_run.spec(1, **change)


@pytest.mark.slow  # Three processes that compile.
@pytest.mark.parametrize("server", ["synchronous", "sequential"])
def test_a_killed_run_ends_with_the_same_bits(tmp_path, server):
  def start(folder):
    script = pathlib.Path(tiny_run.__file__)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / folder), "60", server],
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

  first = start("killed")
  metrics = tmp_path / "killed" / "metrics.jsonl"
  deadline = time.monotonic() + 120
  while time.monotonic() < deadline:
    if metrics.exists() and len(metrics.read_text().splitlines()) > 7:
      break
    time.sleep(0.02)
  first.send_signal(signal.SIGKILL)
  first.wait()
  assert first.returncode == -signal.SIGKILL
  assert start("killed").communicate()[0].split() == ["done", "60"]
  assert start("whole").communicate()[0].split() == ["done", "60"]
  held = [
      training.Checkpoints(tmp_path / name, read_only=True)
      for name in ("killed", "whole")
  ]
  digests = [c.run_of(60)[0] for c in held]
  assert digests[0]["params"] == digests[1]["params"]
  assert digests[0]["rest"] == digests[1]["rest"]
  assert digests[0]["ledger"] == digests[1]["ledger"]
