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
# The papers' tables and figures, from the stored numbers

[![Open in Colab][badge]][colab]

[badge]: https://colab.research.google.com/assets/colab-badge.svg
[colab]: https://colab.research.google.com/github

One command made each comparison of this project and wrote a JSON file to
`experiments/results`: all runs with their settings, accuracies, intervals and
guarantees. This notebook makes the tables and figures again **from these files
only**, by the functions that made the pages. It trains nothing and takes
seconds.

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
## 1. The papers' main table

The table has one row for each published task of DP-MAML's Table 3, with our
results next to it. A sentence introduces each of the following pages.
"""

# %%
import re

from IPython.display import display
from IPython.display import Image
from IPython.display import Markdown

from episodic_dp.output import plotting
from episodic_dp.output import tables
from experiments import results_pages
from experiments import targets

RESULTS = ROOT / "experiments" / "results"
PAGES = results_pages.pages(RESULTS)  # File name -> Markdown, from the JSON.
STORED = results_pages.read(RESULTS)


def words(text):
  """Return Markdown whose links lead to the folder of results."""
  text = re.sub(r"\]\((?!https?://|#)", "](../results/", text)
  return Markdown(re.sub(r"^#", "###", text, flags=re.MULTILINE))


words(PAGES["README.md"])

# %% [markdown]
"""
## 2. Every table and figure

"± " after an accuracy is half of a 95 % interval over test tasks. If a row has
several secret keys, the brackets contain the lowest and the highest accuracy. ε
is rounded up and belongs to the privacy unit that the column names. The scale
*cpu* is smaller than in the papers and fits two cores; *full* has the size of
the papers.
"""


# %%
def show(name):
  """Show the page of one file, and plot its picture again."""
  stored = STORED[name]
  above, _, below = PAGES[f"{name}.md"].partition(f"![{name}]({name}.png)")
  display(words(above))
  figure = results_pages.picture(targets.load(name), stored["runs"])
  display(Image(plotting.png(figure, dpi=90)))
  display(words(below))


PLOTTED = [name for name, stored in STORED.items() if "target" in stored]
for name in PLOTTED[: 2 if SCALE == "smoke" else None]:
  show(name)

# %% [markdown]
"""
## 3. Ask the files yourself

Each run contains the command that makes it again, with placeholders for
folders. `python -m experiments.reproduce --target=NAME --scale=cpu --list`
prints these commands.

Your own questions take a few lines. For example: how many points of accuracy on
new people's handwriting does a writer's privacy cost, compared with runs
without privacy?
"""

# %%
runs = STORED.get("mnist_writers", {"runs": {}})["runs"].values()
scores = {}
for run in runs:
  labels = run["labels"]
  key = (labels["shot"], labels["epsilon"])
  scores.setdefault(key, []).append(100 * run["accuracy"]["single"]["mean"])
means = {key: sum(values) / len(values) for key, values in scores.items()}
print(
    tables.text(
        ("images of a digit", "ε of a writer", "keys", "points lost"),
        [
            (shot, epsilon, len(scores[shot, epsilon]),
             f"{means[shot, None] - mean:.1f}")
            for (shot, epsilon), mean in means.items()
            if epsilon is not None and (shot, None) in means
        ],
    )
)

# %% [markdown]
"""
To make a file again, run `python -m experiments.reproduce --target=NAME
--scale=cpu --workdir=DIR --data_dir=DATA`. An interrupted run resumes where it
stopped, and `python -m experiments.reproduce --write` makes the pages that this
notebook shows.
"""
