"""The pages of results: made from their JSON, and committed as made."""

import re

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from experiments import overview
from experiments import published
from experiments import results_pages
from experiments import targets


def test_the_committed_pages_are_those_that_write_makes():
  made = results_pages.pages()
  committed = {
      path.name: path.read_text(encoding="utf-8")
      for path in results_pages.FOLDER.glob("*.md")
  }
  assert sorted(committed) == sorted(made)
  for name, text in made.items():
    assert committed[name] == text, (
        f"{name} is old: python -m experiments.reproduce --write"
    )


def test_every_page_says_what_made_it():
  for name, text in results_pages.pages().items():
    stem = name.removesuffix(".md")
    if stem == "README":
      continue
    how = text.partition("## How it was made")[2]
    assert "- `" in how and ("code: " in how or "committed at" in how), name
    assert (results_pages.FOLDER / f"{stem}.png").exists(), name
    if stem in targets.NAMES:
      assert targets.load(stem).__doc__.split(".")[0].split()[0] in text


def test_links_of_the_first_page_lead_to_files():
  text = results_pages.pages()["README.md"]
  links = re.findall(r"\]\(([^)#]+)", text)
  assert len(links) > 10
  for link in links:
    assert (results_pages.FOLDER / link).exists(), link


def _row(data, accuracy, private=True, **fields):
  return dict(
      data=data, way=5, shot=1, private=private, learner="protonet", keys=3,
      epsilon=0.49 if private else None, accuracy=accuracy,
  ) | fields  # fmt: skip


def _document(rows):
  return overview.document({"table3": {"rows": rows}}, {})


def test_the_comparison_least_in_our_favour_stands_first():
  text = _document([
      _row("omniglot", 97.0), _row("omniglot", 98.5, private=False),
      _row("cifar_fs", 46.1, learner="maml", query=4, untrained=30.0),
      _row("cifar_fs", 51.0),
      _row("omniglot", 80.0, learner="maml", clipping="percentile",
           epsilon="inf"),
  ])  # fmt: skip
  first, _, rest = text.partition("| task |")
  least = " ".join(first.split())
  assert "CIFAR-FS 5-way 1-shot we have 46.1 (MAML, 4 queries, 3 keys)" in least
  assert "2.0 points below the published private network and 14.9" in least
  cifar = [x for x in rest.splitlines() if "[CIFAR-FS 5-way 1-shot]" in x]
  assert ["46.1" in cifar[0], "51.0" in cifar[1]] == [True, True]
  # It has no twin without privacy.
  assert cifar[0].endswith("| - | 30.0 |")
  (omniglot,) = [x for x in rest.splitlines() if "97.0 (prototyp" in x]
  assert omniglot.endswith("| 98.5 | - |")
  # What has no guarantee is shown, and is not compared.
  unproved = "| 80.0 (MAML, percentile clipping, 3 keys) | no guarantee | - |"
  assert unproved in rest
  missing = " ".join(rest.partition("Not run yet:")[2].split())
  assert missing.startswith("Omniglot 20-way 1-shot, CIFAR-FS 5-way 5-shot")


def test_published_epsilons_are_those_of_the_sampler_not_the_claim():
  text = _document([])
  assert "No run of ours" in text
  for name, data in (("Omniglot 5-way 1-shot", "omniglot"),
                     ("mini-ImageNet 5-way 1-shot", "mini_imagenet")):
    (line,) = [x for x in text.splitlines() if x.startswith(f"| {name}")]
    claimed, true = line.split("|")[4].split(",")
    spent = published.epsilon_as_drawn(data)
    assert float(claimed) == published.EPSILON < spent <= float(true)
    assert published.epsilon_by_poisson(data) < spent


@pytest.mark.parametrize(
    "text, told", [(None, "no results"), ("{", "cannot be read")]
)
def test_a_folder_that_cannot_be_read_says_so(tmp_path, text, told):
  if text is not None:
    (tmp_path / "learners.json").write_text(text)
  with pytest.raises(ValueError, match=told) as e:
    results_pages.write(tmp_path)
  assert str(tmp_path) in str(e.value)
  assert not list(tmp_path.glob("*.md"))


def test_epsilon_of_adult_stands_with_its_deltas():
  page = results_pages.pages()["pvi_adult.md"]
  assert "| homogeneous | 1 | 0.9989 | 1e-4 | 236 |" in page
  assert "| inhomogeneous 2 | 1 | 1.000 | 1e-3 / 1e-4 | 284 / 238 |" in page
  # Each kind of client within the budget with its own delta, and nearly at it.
  for rows, visits, delta in ((879, 284, 1e-3), (4982, 238, 1e-4)):
    release = plan.Release(
        plan.Hierarchy.regular((rows,), levels=("example",)),
        plan.SamplingPlan((plan.Poisson(max(20, -(-rows // 50)) / rows),)),
        plan.Mechanism(
            clip_unit="example", clip_norm=2.0, noise_multiplier=5.0
        ),
    )
    reached = accounting.guarantee(
        release, steps=25 * visits, delta=delta, level="example"
    )
    assert 0.99 < reached.epsilon <= 1
