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

A model that was trained on the handwriting of many people reads a new person's
handwriting after one example of each character. How much does the model reveal
about the people it was trained on? Here it is trained **with a guarantee for
each person**: for everything that the person wrote, for everything that the
person wrote of one character, and for a single image.

The notebook uses one of two data sets:

- **MNIST by its writers**: the digits of 539 real people, each a privacy unit,
  and of other people for validation and test. Set `DOWNLOAD = True` below to
  fetch it (13 MB), or name its folder in the environment variable
  `EPISODIC_DP_DATA`.
- **Generated glyphs**, without any download: thousands of generated people who
  each write a separate small script.

It takes about two minutes on two CPU cores.

On Colab, run this in a new cell first, with the address of the repository that
you opened this notebook from:

    !git clone -q --depth=1 ADDRESS source
    %cd source
    %pip install -q .
"""

# %%
import os

SCALE = os.environ.get("EPISODIC_DP_SCALE", "cpu")  # "smoke": seconds, a try.

# %% [markdown]
"""
## 1. The people

`train` is the data that need protection. `validation` and `test` are other
people, whose data are assumed to be public: validation people monitor the
training, test people measure the result once.
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
print(people.train)
print("units of privacy:", " > ".join(people.train.hierarchy.levels))

# %% [markdown]
"""
A task consists of five characters of *one* person. The model sees one image of
each (the *support*) and classifies other images of the same characters (the
*query*). The picture shows tasks of validation people. Images of training
people are never shown.
"""

# %%
TASKS = dict(way=5, shot=1, query=1)
COUNT = 20 if SCALE == "smoke" else 600
validation = training.sample_tasks(
    people.validation, **TASKS, count=COUNT, seed=1
)
test = training.sample_tasks(people.test, **TASKS, count=COUNT, seed=2)


@plotting.styled
def some_tasks(tasks, count=4):
  """Plot support images above query images, people side by side."""
  figure = plotting.figure(1.5, width=plotting.WIDE)
  panels = figure.subplots(2, 5 * count)
  for number in range(count):
    for i in range(5):
      for j, axes in enumerate(panels[:, 5 * number + i]):
        axes.imshow(tasks.images[tasks.rows[number, i, j], ..., 0], cmap="gray")
        axes.set_axis_off()
    panels[0, 5 * number].set_title(f"task {number + 1}")
  return figure


Image(plotting.png(some_tasks(validation)))

# %% [markdown]
"""
## 2. What a step samples, and what it costs

A step samples each person independently, then five of their characters, then
five images of each: one support and four query images. It clips the gradient of
a whole task, and a task belongs to one person. The noise is the least with
which all steps together stay within the wanted ε for a person.
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
print(
    *accounting.guarantees(release, steps=STEPS, delta=DELTA).values(),
    sep="\n",
)

# %% [markdown]
"""
The same noise gives three guarantees. Each bounds how well an attacker can
infer from the model

- for **a person**: whether this person took part;
- for **a character**: whether the data contained what this person wrote of one
  character, such as their sevens;
- for **an image**: whether the data contained this image.

With 539 people of MNIST a small ε needs much noise, since each person is
sampled in half of the steps. (The built-in glyphs have 4000 people, each
sampled in one of twenty steps.) A character or an image can cost more than its
person: if it is missing, another one is sampled instead, which can reverse the
gradient of the task. A missing person only removes the gradient.

## 3. Training

The network is small because the norm of the noise grows with the number of
weights. The learner is a prototypical network: it assigns a new image to the
character whose support image has the nearest embedding.

`callbacks` receive only what the guarantee covers: the step, ε so far, and the
accuracy on validation people. They never receive the training loss, which
depends on private data without noise. Every run has **its own secret key**.
Anyone who knows the key can compute and subtract the noise, so a fixed key
voids the guarantee. Therefore your numbers differ from those here by some
points: six private runs of 2.0 on MNIST reached 88.3 to 93.4 %. The
printed ± is a 95 % interval over tasks, not over keys.
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
For comparison, the same training without privacy: no noise, no clipping, and no
guarantee. **Do this with public data only.** Never publish such a run on data
that need protection.
"""

# %%
without_privacy, _ = train(
    release.replace(
        mechanism=plan.Mechanism(
            clip_unit=PERSON, clip_norm=float("inf"), noise_multiplier=0.0
        )
    ),
    "not private",
)


@plotting.styled
def curves():
  """Plot a line for each run, and chance."""
  figure = plotting.figure(3.2)
  axes = figure.subplots()
  for number, (name, points) in enumerate(CURVES.items()):
    axes.plot(
        [step for step, _ in points],
        [100 * accuracy for _, accuracy in points],
        label=name,
        **plotting.series(number),
    )
  axes.axhline(20, label="chance", **plotting.REFERENCE)
  axes.set_xlabel("steps")
  axes.set_ylabel("accuracy on validation people (%)")
  axes.legend(loc="lower right")
  return figure


Image(plotting.png(curves()))

# %% [markdown]
"""
## 4. People who did not train

No test data have been used so far. The model sees one image of each of five
characters of every test person.
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
print(
    tables.text(
        ("model", "accuracy on test people", f"ε of a {PERSON}"), rows
    )
)
print(f"\nchance is 20 %; 95 % intervals over {COUNT} tasks")
print("what the private model promises:")
print(*result.guarantees.values(), sep="\n")

# %% [markdown]
"""
These numbers have two limits. The interval treats several tasks of one person
as independent. And trained networks have also learned what digits look like in
general, not only how to read a new hand.

The two runs differ in clipping as well as in noise, and clipping can help. On
the built-in glyphs, with three keys each, the private runs reached 91.3 to 92.0
%, the runs without privacy only 89.1 to 90.4 %, and runs with clipping but
without noise 92.9 to 93.3 %. There clipping helps more than the noise costs. On
MNIST, with fewer people, the noise costs more.

The notebook `tables` shows the cost of privacy at other ε, with three keys each
(from `experiments/results/mnist_writers.json`).

## Where to go from here

- Change `EPSILON` or the rate. Another learner is
  `learners.MAML(models.conv4(way=5, width=WIDTH))`. To learn from five images,
  load the people with `per_digit=6` (MNIST) or `drawings=6` (glyphs), put
  `shot=5, query=1` into the episode and into `TASKS`, and `FixedSize(6)` as the
  last stage of the plan.
- Keep a run: give `training.train` a permanent folder. The run then resumes
  where it stopped, and `guarantee.json` is the statement that others can check.
  The folder `private/` contains the secret key: never publish it.
- Your own data: one flag reads a folder `person/label/image` (`docs/data.md`).
"""
