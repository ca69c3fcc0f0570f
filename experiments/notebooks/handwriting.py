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
# Private few-shot learning on people's handwriting

[![Open in Colab][badge]][colab]

[badge]: https://colab.research.google.com/assets/colab-badge.svg
[colab]: https://colab.research.google.com/github

A model that has seen the hands of many people reads a new person's hand after
one example of each character. But what does the model then tell about the
people that it learned from? Here it learns **with a guarantee for every one of
them**: for all that a person wrote, for what they wrote of one character, and
for a single image.

Two data sets do for this notebook:

- **MNIST by its writers**: the digits of 539 real people, each a unit of
  privacy, and of others who do not train. Set `DOWNLOAD = True` below to fetch
  it (13 MB), or name a folder that has it in the environment variable
  `EPISODIC_DP_DATA`.
- **Generated glyphs**, without any download: thousands of made-up people who
  each write a small script of their own.

It takes about two minutes on two CPU cores. The next cell installs the library
where it is missing. (Colab asks for the address of the repository: the one that
you opened this notebook from.)
"""

# %%
import os
import pathlib
import subprocess
import sys

SCALE = os.environ.get("EPISODIC_DP_SCALE", "cpu")  # "smoke": seconds, a try.
here = pathlib.Path.cwd()
ROOT = next(
    (p for p in (here, *here.parents) if (p / "experiments").is_dir()),
    here / "episodic_dp_source",
)
if not ROOT.is_dir():  # Such as on Colab.
  address = input("Address of the repository that has this notebook: ")
  subprocess.run(
      f"git clone -q --depth=1 {address} {ROOT} && pip install {ROOT}",
      shell=True, check=True,
  )
sys.path.insert(0, os.fspath(ROOT))

# %% [markdown]
"""
## 1. The people

`train` is what needs protection. `validation` and `test` are other people, who
are taken for public: the first to watch the training by, the second to judge it
once.
"""

# %%
import tempfile

from IPython.display import Image
import jax
import optax

import episodic_dp
from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.output import plotting
from episodic_dp.output import tables

DATA = os.environ.get("EPISODIC_DP_DATA")  # A folder with mnist_writers/.
DOWNLOAD = False
REAL = SCALE != "smoke" and (DOWNLOAD or DATA is not None)
episodic_dp.use_all_cores()

if REAL:
  people = data.load("mnist_writers", data_dir=DATA, download=DOWNLOAD)
  RATE, EPSILON, STEPS = 0.5, 4.0, 40
else:
  tiny = SCALE == "smoke"
  people = data.load(
      "glyphs",
      participants=200 if tiny else 4000,
      validation_participants=20 if tiny else 200,
      test_participants=20 if tiny else 600,
  )
  RATE, EPSILON, STEPS = 0.05, 4.0, 2 if tiny else 60
PERSON, CHARACTER, IMAGE = people.train.hierarchy.levels
print(people.train.name, "-", people.train.description)
print("units of privacy:", " > ".join(people.train.hierarchy.levels))

# %% [markdown]
"""
A task is five characters of *one* person. The model sees one image of each (the
*support*), and is asked which of the five the other images are (the *query*).
These are tasks of validation people; the training people's images stay where
they are, also in a notebook that others will read.
"""

# %%
TASKS = dict(way=5, shot=1, query=1)
COUNT = 20 if SCALE == "smoke" else 600
validation = training.draw(people.validation, **TASKS, count=COUNT, seed=1)
test = training.draw(people.test, **TASKS, count=COUNT, seed=2)


@plotting.styled
def some_tasks(tasks, count=4):
  """Draw support images above query images, a person beside another."""
  figure = plotting.figure(1.5, width=plotting.WIDE)
  panels = figure.subplots(2, 5 * count)
  for number in range(count):
    for i in range(5):
      for j, axes in enumerate(panels[:, 5 * number + i]):
        image = tasks.images[tasks.rows[number, i, j], ..., 0]
        axes.imshow(image, cmap="gray")
        axes.set_axis_off()
    panels[0, 5 * number].set_title(f"task {number + 1}")
  return figure


Image(plotting.png(some_tasks(validation)))

# %% [markdown]
"""
## 2. What a step draws, and what it may cost

Each person is drawn by a coin of their own, then five of their characters, then
five images of each: one to learn from and four to be tested on. What is clipped
is the gradient of a whole task, and a task is a person. The noise is the least
with which all steps together stay within the ε that is wanted for a person.
"""

# %%
DELTA = 1e-5
sampling = plan.SamplingPlan(
    (plan.Poisson(RATE), plan.FixedSize(5), plan.FixedSize(5)),
    episode=plan.Episode(way=5, shot=1, query=4),
    allow_short_units=True,  # Some wrote few images of a digit: those tasks are
    # left out of the sum, by a rule that depends on public sizes alone.
)
release = plan.Release(
    people.train.hierarchy,
    sampling,
    plan.Mechanism(clip_unit=PERSON, clip_norm=1.0, noise_multiplier=1.0),
)
release = release.replace(
    mechanism=accounting.calibrate(
        release, steps=STEPS, epsilon=EPSILON, delta=DELTA, level=PERSON
    )
)
print(f"noise multiplier {release.mechanism.noise_multiplier:.3f}")
guarantees = accounting.guarantees(release, steps=STEPS, delta=DELTA)
print(*guarantees.values(), sep="\n")

# %% [markdown]
"""
Three guarantees from the same noise. What each of them bounds is how well one
can tell from the model

- **the person's**: whether this person took part at all;
- **the character's**: whether what this person wrote of one character, their
  sevens, say, was among the data;
- **the image's**: whether one image was.

With MNIST's 539 people there is little to hide among: each is drawn in half of
the steps, and a small ε would need more noise than the model can bear. (The
built-in glyphs have 4000 people, each drawn in one step of twenty.) A
character or an image need not be cheaper than its person: another one is drawn
in its place, which can turn a task's gradient around, where a person's absence
only takes it away.

## 3. Training

The network is small on purpose: noise grows with the number of weights. The
learner is a prototypical network, which takes a new image for the character
whose example is nearest to it.

`callbacks` are told what the guarantee covers, and nothing else: the step, ε so
far, the accuracy on validation people. Never the training loss, which is a
function of the private data that no noise was added to. The run draws **a
secret key of its own**: with a fixed key the noise could be computed and taken
off again, and the guarantee would be void. So your numbers will differ from
those here, by some points from key to key (six private runs on MNIST gave 88.3
to 93.4 % on test people). The ± that is printed is over tasks, not over keys.
"""

# %%
WIDTH = 2 if SCALE == "smoke" else 8
learner = learners.ProtoNet(models.conv4(way=None, width=WIDTH), way=5)
optimizer = optax.adam(optax.cosine_decay_schedule(0.03, STEPS, alpha=0.1))
evaluator = training.Evaluator(learner)
untrained = learner.init(jax.random.key(0))
before = evaluator.score([untrained], validation)


CURVES = {}  # Name of a run -> (step, validation accuracy).


def train(of, name):
  """Train a release in a temporary folder; return parameters and result."""
  points = CURVES[name] = [(0, before.mean)]

  def callback(line):
    if "validation_accuracy" in line:
      points.append((line["step"], line["validation_accuracy"]))

  spec = training.TrainingSpec(
      train=people.train,
      release=of,
      learner=learner,
      optimizer=optimizer,
      steps=STEPS,
      delta=DELTA,
      validation=validation,
      evaluator=evaluator,
      evaluate_every=max(STEPS // 10, 1),
      checkpoint_every=STEPS,
  )
  with tempfile.TemporaryDirectory() as folder:
    result = training.train(spec, folder, callbacks=[callback])
    checkpoints = training.checkpoint.Checkpoints(folder)
    params, _ = checkpoints.restore(checkpoints.latest(), untrained)
  return params, result


with_privacy, result = train(release, f"private, ε = {EPSILON:g}")

# %% [markdown]
"""
For comparison the same without privacy: no noise and no clipping, hence no
guarantee at all. **This is for a lesson on public data.** On data that need
protection such a run is one to keep to yourself.
"""

# %%
bare = plan.Mechanism(
    clip_unit=PERSON, clip_norm=float("inf"), noise_multiplier=0.0
)
without_privacy, _ = train(release.replace(mechanism=bare), "not private")


@plotting.styled
def curves():
  """Draw a line for each run, and chance."""
  figure = plotting.figure(3.2)
  axes = figure.subplots()
  for number, (name, points) in enumerate(CURVES.items()):
    steps, accuracies = zip(*points)
    percent = [100 * a for a in accuracies]
    axes.plot(steps, percent, label=name, **plotting.series(number))
  axes.axhline(20, label="chance", **plotting.REFERENCE)
  axes.set_xlabel("steps")
  axes.set_ylabel("accuracy on validation people (%)")
  axes.legend(loc="lower right")
  return figure


Image(plotting.png(curves()))

# %% [markdown]
"""
## 4. People who did not train

The test people were looked at by nothing so far. Each is met for the first
time, with one image of each of five characters.
"""

# %%
rows = [
    ("untrained", evaluator.score([untrained], test), "-"),
    (
        "private",
        evaluator.score([with_privacy], test),
        report.rounded_up(result.guarantees[PERSON].epsilon),
    ),
    ("not private", evaluator.score([without_privacy], test), "none"),
]
header = ("model", "accuracy on test people", f"ε of a {PERSON}")
print(tables.text(header, rows))
print(f"\nchance is 20 %; 95 % intervals over {COUNT} tasks")
print("what the private model promises:")
print(*result.guarantees.values(), sep="\n")

# %% [markdown]
"""
What the numbers do not say: an interval over tasks takes several tasks of one
person for independent ones. And of real digits a good part is how digits look
whoever wrote them, which the untrained network has not seen and every trained
one has.

The two runs differ in clipping as well as in noise, and clipping can help. On
the built-in glyphs, with three keys each, the private run had 91.3 to 92.0 %,
the one without privacy *less*, 89.1 to 90.4 %, and one that was clipped without
noise 92.9 to 93.3 %: the noise costs less there than clipping brings. On MNIST,
with fewer people, it costs more.

What privacy costs at other ε, with three keys each, is a table in the notebook
`tables` (from `experiments/results/mnist_writers.json`).

## Where to go from here

- Change `EPSILON` or the rate. Another learner is
  `learners.MAML(models.conv4(way=5, width=WIDTH))`. To learn from five images,
  load the people with `per_digit=6` (MNIST) or `drawings=6` (glyphs), put
  `shot=5, query=1` into the episode and into `TASKS`, and `FixedSize(6)` as the
  last stage of the plan.
- Keep a run: give `training.train` a folder of your own instead of a temporary
  one. It is resumed where it stopped, and `guarantee.json` in it is the
  statement that others can check. The folder `private/` in it holds the secret
  key: it stays with you.
- Your own people: a folder `person/label/image` is a data set by one flag
  (`docs/data.md`), and `docs/quick_start.md` has it in twenty lines.
"""
