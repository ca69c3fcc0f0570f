# ---
# jupyter:
#   jupytext:
#     cell_markers: '"""'
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
"""
# One posterior from many clients: private PVI on UCI Adult

[![Open in Colab][badge]][colab]

[badge]: https://colab.research.google.com/assets/colab-badge.svg
[colab]: https://colab.research.google.com/github

Ten clients, such as hospitals or banks, hold rows of a table that they cannot
share. They want **one model of all rows, with its uncertainty**, and a privacy
guarantee for every row of every client. *Partitioned variational inference*
(PVI) does this: a server keeps the prior and one factor for each client, and a
visited client improves its own factor on its own rows.

The table is UCI Adult: does a person earn more than 50 000 dollars a year? The
environment variable `EPISODIC_DP_DATA` names its folder (`adult.data` and
`adult.test`, from <https://archive.ics.uci.edu/dataset/2/adult>). Without it
the notebook generates a table with the same columns, and says so.

It takes about two minutes on two CPU cores.

On Colab, run this in a new cell first, with the address of the repository that
you opened this notebook from:

    !git clone -q --depth=1 ADDRESS source
    %cd source
    %pip install -q .
"""

# %%
import os
import pathlib
import sys

SCALE = os.environ.get("EPISODIC_DP_SCALE", "cpu")  # "smoke": seconds, a try.
here = pathlib.Path.cwd()
ROOT = next(p for p in (here, *here.parents) if (p / "experiments").is_dir())
sys.path.insert(0, os.fspath(ROOT))

# %% [markdown]
"""
## 1. How the factors combine

Each of three clients observes points on a part of a line. Here the exact
posterior of offset and slope is known (dotted). The picture shows the posterior
of the server, and each client's factor times the prior. No client sends a
point: it sends its factor only, a Gaussian.
"""

# %%
import json
import tempfile

from IPython.display import Image
import numpy as np

import episodic_dp
from episodic_dp.accounting import report
from episodic_dp.config import pvi as pvi_config
from episodic_dp.config.presets.pvi import adult as preset
from episodic_dp.output import plotting
from episodic_dp.output import tables
from episodic_dp.pvi import adult
from episodic_dp.pvi import federation
from episodic_dp.pvi import program
from experiments import pvi_picture

episodic_dp.use_all_cores()
Image(plotting.png(pvi_picture.convergence()))

# %% [markdown]
"""
## 2. The rows, and who holds them

A statistic of private rows, such as a mean or the list of values of a column,
would be one more release. Therefore a public schema contains the centres,
scales and words of all columns. Validation and test rows are public.
"""

# %%
DATA = os.environ.get("EPISODIC_DP_DATA")  # A folder with adult/.
REAL = SCALE != "smoke" and DATA is not None


def made_up(folder, counts, seed=0):
  """Write files like Adult's, whose labels depend on a few columns."""
  rng = np.random.default_rng(seed)
  for name, count in zip(adult.FILES, counts):
    lines = []
    for _ in range(count):
      age, years = rng.integers(18, 75), rng.integers(5, 17)
      hours, married = rng.integers(20, 60), rng.random() < 0.5
      score = 0.04 * (age - 45) + 0.4 * (years - 11) + 0.03 * (hours - 40)
      rich = rng.logistic() < score + 2 * married - 2.5
      lines.append(
          f"{age}, Private, 0, HS-grad, {years},"
          f" {'Married-civ-spouse' if married else 'Divorced'}, Sales,"
          f" Unmarried, White, {rng.choice(['Male', 'Female'])}, 0, 0, {hours},"
          f" United-States, {'>50K' if rich else '<=50K'}"
      )
    (pathlib.Path(folder) / name).write_text("\n".join(lines))


SPLIT = "inhomogeneous_1"  # Or "homogeneous", or "inhomogeneous_2".
config = preset.adult(split=SPLIT)
if REAL:
  rows = pvi_config.load(config, DATA)
else:
  with tempfile.TemporaryDirectory() as data_folder:
    small = SCALE == "smoke"
    made_up(data_folder, (4000, 500) if small else (30_000, 10_000))
    rows = pvi_config.load(config, data_folder)
MADE_UP = "MADE-UP ROWS, not Adult: the numbers mean nothing"
print("UCI Adult" if REAL else MADE_UP)
print(
    tables.text(
        ("client", "rows", "share above 50 000"),
        [
            (name, len(held), f"{100 * rows.train.labels[held].mean():.0f} %")
            for name, held in rows.members.items()
        ],
    )
)

# %% [markdown]
"""
Half of the clients are small and have few rows of the rarer class, so they
benefit from the others.

## 3. What a client releases, and when it stops

In a visit a client takes 25 private steps on its own rows. Each step samples a
Poisson batch, clips the gradient of each *row*, and adds noise to their sum.
The client's answer depends on these noised sums only. Each client has **its own
ledger** and stops *before* a visit that would exceed its budget; the other
clients continue.

No row belongs to two clients. Each row has the guarantee of its client, and
every row has the worst of these guarantees.

The next cell trains with two budgets and without privacy (for public data
only). Every run has its own secret key, since a known key voids the guarantee.
"""

# %%
if SCALE == "smoke":
  ARGUMENTS = {8.0: dict(epsilon=8.0, rounds=2)}
else:
  ARGUMENTS = {
      0.5: dict(epsilon=0.5),
      1.0: dict(epsilon=1.0),
      None: dict(private=False, rounds=100),
  }
results, curves, compiled = [], {}, {}
for epsilon, arguments in ARGUMENTS.items():
  config = preset.adult(split=SPLIT, **arguments)
  spec = pvi_config.build(config, rows)
  private = epsilon is not None
  if private not in compiled:  # Two budgets share what is compiled.
    compiled[private] = federation.Federation(spec)
  with tempfile.TemporaryDirectory() as folder:
    found = program.run(spec, folder, federation=compiled[private])
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
  name = "not private" if epsilon is None else f"ε ≤ {epsilon:g}"
  curves[name] = [
      (line["step"], line["validation_accuracy"])
      for line in map(json.loads, lines)
      if "validation_accuracy" in line
  ]
  accuracy, log_likelihood = program.score(
      spec.learner, found.posterior, pvi_config.examples(rows.test)
  )
  spent, delta = program.worst(found.guarantees)
  results.append((
      name,
      "none" if epsilon is None else report.rounded_up(spent),
      "-" if epsilon is None else f"{delta:g}",
      " / ".join(map(str, sorted(set(found.visits)))),
      f"{100 * accuracy:.2f} %",
      f"{log_likelihood:.4f}",
  ))
  if epsilon is not None:
    print(f"{name}:", *program.summary(spec, found).splitlines()[1:], sep="\n")

# %% [markdown]
"""
In this split small clients spend their budget in fewer visits: a batch has at
least 20 rows, which is 7 % of their rows instead of 2 %, so each row is sampled
more often. Their earlier factors stay in the posterior.
"""

# %%
print(
    tables.text(
        ("budget", "ε of every row", "at δ", "visits of a client",
         "test accuracy", "test log likelihood"),
        results,
    )
)


@plotting.styled
def over_rounds():
  """Plot the accuracy on public validation rows over the rounds."""
  figure = plotting.figure(3.0)
  axes = figure.subplots()
  for number, (name, points) in enumerate(curves.items()):
    axes.plot(
        [rounds for rounds, _ in points],
        [100 * accuracy for _, accuracy in points],
        label=name, **plotting.series(number) | {"marker": ""},
    )
  axes.set_xlabel("rounds: a visit of every client that may be visited")
  axes.set_ylabel("accuracy on validation rows (%)")
  axes.legend(loc="lower right")
  return figure


Image(plotting.png(over_rounds()))

# %% [markdown]
"""
## 4. All splits and budgets

`experiments/results/pvi_adult.md` and the notebook `tables` show the stored
runs on the real table: three splits, three budgets and none, and three secret
keys each, with the published numbers of private PVI. A part of the gain comes
from accounting: a tighter accountant allows more visits at the same ε.
`docs/pvi.md` lists the differences and how settings were chosen.

## 5. What the guarantee says, and what it does not

- It is for **adding or removing one row**, whatever servers and other clients
  do. A row that *moves* from one client to another changes both and costs both
  guarantees.
- It is not for a whole client. If the unit is a hospital with all of its
  patients, use *client-level* privacy, which clips and noises the change of a
  client's factor (`pvi/servers.py`).
- The number of rows of each client is public. A client that stays away
  *because* of its rows reveals something that no noise covers.

For your own table, `episodic-dp pvi --config=own_table` reads a CSV file with a
column of clients (`docs/pvi.md`). Its runs resume where they stopped and write
a privacy statement for each client.
"""
