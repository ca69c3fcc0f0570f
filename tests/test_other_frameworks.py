"""docs/other_frameworks.md: PyTorch trains by the recipe; it pays what it says.

PyTorch is not in the environment, which mypy reads: `make test-slow` puts it
into a folder that EPISODIC_DP_TORCH names.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import plan

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "other_frameworks.md"
SMALL = (
    'data.load("glyphs", participants=300, validation_participants=5,'
    " test_participants=5)"
)


def _recipe():
  (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
  return code


def test_the_recipe_is_short():
  lines = [line for line in _recipe().splitlines() if line.strip()]
  assert len(lines) < 30 and max(map(len, lines)) <= 80


@pytest.fixture(scope="module")
def run():
  """run(code) -> what it prints, in a process that finds PyTorch."""
  folder = os.environ.get("EPISODIC_DP_TORCH", "")
  found = importlib.util.find_spec("torch") or (
      pathlib.Path(folder) / "torch" / "__init__.py"
  ).is_file()
  if not found:
    pytest.skip("PyTorch is not installed: `make test-slow` does that")
  path = str(pathlib.Path(folder).absolute())

  def running(code):
    # Behind the environment, whose packages come first.
    code = f"import sys\nsys.path.append({path!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

  return running


def _small(code, *, rate="0.1", steps=10):
  """The same calls on few participants, and fewer steps."""
  small = code.replace('data.load("glyphs")', SMALL).replace("0.02", rate)
  small = small.replace("steps=60", f"steps={steps}")
  assert small.count(SMALL) == 1 and small.count(f"steps={steps}") == 2
  return small


@pytest.mark.slow
def test_it_prints_the_guarantees_of_what_it_draws(run):
  printed = run(_small(_recipe())).splitlines()
  train = data.load(
      "glyphs", participants=300, validation_participants=5,
      test_participants=5,
  ).train  # fmt: skip
  release = plan.Release(
      train.hierarchy,
      plan.SamplingPlan(
          (plan.Poisson(0.1), plan.FixedSize(5), plan.FixedSize(2)),
          plan.Episode(way=5, shot=1, query=1),
      ),
      plan.Mechanism(
          clip_unit="participant", clip_norm=1.0, noise_multiplier=1.0
      ),
  )
  expected = accounting.guarantees(release, steps=10, delta=1e-5)
  assert list(expected) == ["participant", "glyph", "drawing"]
  assert printed == [str(g) for g in expected.values()]


@pytest.mark.slow
def test_it_learns_without_noise_and_takes_steps_that_draw_nobody(run):
  check = """
def right():
  found = [images[i * 40 : i * 40 + 25].reshape(5, 5, 1, 28, 28)[:, :2]
           for i in range(200)]
  found = [task.reshape(10, 1, 28, 28) for task in found]
  logits = [-torch.cdist(net(t)[1::2], net(t)[::2]) for t in found]
  return sum((l.argmax(1) == torch.arange(5)).sum() for l in logits) / 1000
"""
  start, loop = _small(_recipe(), rate="0.05", steps=60).split("key = ")
  loop = f"key = {loop}"
  quiet = loop.replace("noise_multiplier *", "noise_multiplier * 0 *")
  assert quiet != loop
  before, after = map(
      float,
      run(
          f"{start}{check}print(float(right()))\n"
          f"{quiet.split('print(')[0]}print(float(right()))"
      ).split(),
  )
  assert after > before + 0.05
  nobody = _small(_recipe(), rate="0.0001").replace("  adam.step()", """
  adam.step()
  assert all(w.grad.std() > 0 for w in net.parameters() if w.dim() > 1)
  seen = globals().get("seen", 0) + (not rows)""")
  assert int(run(f"{nobody}print(seen)").splitlines()[-1]) > 5


@pytest.mark.slow
def test_a_loader_takes_the_batches(run):
  printed = run("""
import torch
from episodic_dp import plan
from episodic_dp.sampling import numpy_sampler, torch_sampler

r = plan.Release(
    plan.Hierarchy.regular((50,), levels=("image",)),
    plan.SamplingPlan((plan.Poisson(0.02),)),
    plan.Mechanism(clip_unit="image", noise_multiplier=1.0),
)
key = numpy_sampler.secret_key()
batches = torch_sampler.BatchSampler(r, key=key, steps=40)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.arange(50)),
    batch_sampler=batches,
    collate_fn=lambda found: [int(x) for (x,) in found],
)
assert len(loader) == 40 and list(loader) == list(batches)
assert any(not rows for rows in batches)
print("jax" in sys.modules)
""")
  assert printed.split() == ["False"]
