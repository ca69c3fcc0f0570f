"""What stands on the page, read from its HTML and seen by a browser."""

import json
import re
import shutil
import subprocess

import ml_collections
import pytest

from episodic_dp.accounting import report as accounting_report
from episodic_dp.analysis.inspection import page as page_lib
from episodic_dp.analysis.inspection import report
from episodic_dp.config.run_config import RunConfig
from tests.analysis.inspection import page_reader

# A page of its own is drawn; `test_report` makes one among the quick tests.
pytestmark = pytest.mark.slow

LEVELS = ["participant", "glyph", "drawing"]


@pytest.fixture(scope="module")
def page(shown):
  return page_reader.Page((shown[1] / "index.html").read_text("utf-8"))


def test_it_is_one_closed_document_that_loads_and_runs_nothing(page):
  assert page.open == [] and page.title == "glyphs:participants=40"
  assert page.tags.count("h1") == 1 and "script" not in page.tags
  assert all(link.startswith("#") for link in page.links)
  ids = {link[1:] for link in page.links}
  assert ids == {"plan", "episodes", "rates", "guarantees"}


def test_every_image_is_embedded_described_and_sized(page):
  assert len(page.images) == 3 * 5 * 2 + 4
  for one in page.images:
    size = page_reader.picture(one).size
    assert (str(size[0]), str(size[1])) == (one["width"], one["height"])
    assert len(one["alt"]) > 15
  assert len({one["alt"] for one in page.images}) == len(page.images)


def test_tasks_carry_their_labels(page):
  for task in (1, 2, 3):
    for label in range(5):
      alts = [one["alt"] for one in page.images]
      assert f"Task {task}, label {label}: 1 support image" in alts
      assert f"Task {task}, label {label}: 2 query images" in alts
  assert page.text.count("label 4") == 3


def test_tables_have_captions_and_the_numbers_of_the_plan(page):
  assert all(t["caption"] for t in page.tables) and len(page.tables) == 3
  plan = page.table("The hierarchy")
  assert [row[0] for row in plan[1:]] == LEVELS
  assert [row[1].replace("\u202f", "") for row in plan[1:]] == [
      "40", "320", "1600"
  ]
  assert plan[1][3] == (
      "Poisson: every participant with probability 0.1 (4 expected)"
  )
  rates = page.table("Rates")
  assert [row[1:4] for row in rates[1:]] == [
      ["1", "0.1", "0.1"], ["0.1", "0.625", "0.0625"],
      ["0.0625", "0.6", "0.0375"],
  ]
  for row in rates[1:]:  # 300 draws: within a few per cent.
    counted = float(row[5].partition(" ± ")[0])
    assert counted == pytest.approx(float(row[4]), rel=0.1)


def test_upper_levels_are_counted_in_the_draws_of_the_leaves(shown):
  writer, glyph, drawing = (one.times_drawn for one in shown[0].counted)
  assert writer.size == 40 and 0.05 < writer.mean() / 300 < 0.15
  assert (glyph.reshape(40, 8).sum(1) == 5 * writer).all()
  assert (drawing.reshape(320, 5).sum(1) == 3 * glyph).all()


def test_guarantees_are_rounded_up_and_state_their_terms(page, shown):
  rows = page.table("One guarantee")
  assert [row[0] for row in rows[1:]] == LEVELS
  summary = shown[0].summary
  for level, epsilon, delta, eta, neighbours, *others in rows[1:]:
    g = summary.guarantees[level]
    assert float(eta) == pytest.approx(g.inclusion_rate, rel=1e-3)
    assert epsilon == accounting_report.rounded_up(g.epsilon)
    assert float(epsilon) >= g.epsilon and float(delta) == 1e-5
    assert neighbours == f"add or remove one {level}"
    assert others == [g.direction, "pld"]
    assert summary.curves[level][-1] == pytest.approx(g.epsilon, rel=1e-3)
    assert all(sentence in page.text for sentence in g.assumptions)


def bare(**fields):
  """A config without data, whose records recur under other units."""
  c = ml_collections.ConfigDict(
      dict(
          hierarchy=dict(
              sizes=(400, 5, 2), levels=("a", "b", "c"), copies=True
          ),
          plan=dict(stages=("Poisson(0.01)", "FixedSize(5)", "FixedSize(2)")),
          episode=dict(way=5, shot=1, query=1, form="unit"),
          mechanism=dict(clip_unit="a", noise_multiplier=1.0),
          steps=10,
          delta=1e-6,
      )
  )
  c.update(fields)
  return c


def test_levels_without_a_guarantee_say_why(make):
  content = make(config=bare())
  rows = page_reader.Page(page_lib.render(content)).table("One guarantee")
  assert [row[:2] for row in rows[2:]] == [["b", "none"], ["c", "none"]]
  for level in "bc":
    reason = content.summary.reasons[level]
    assert [level, "none", reason] in rows and len(reason) > 20
  text = page_lib.render(content)
  assert "names no data" in text and "Records recur under other" in text


def test_plans_that_are_only_accounted_are_drawn_without_tasks(make):
  other = bare()
  del other.episode
  content = make(config=other)
  text = page_lib.render(content)
  assert "it has no episode" in text and "forms no tasks" in text
  assert content.task_sheet is None and set(content.pictures) == {
      "tree", "rates", "epsilon"
  }


def test_passes_are_described_and_not_counted(config):
  other = config.copy_and_resolve_references()
  other.plan.stages = ("RandomAllocation(10)", "FixedSize(5)", "FixedSize(3)")
  content = report.make(
      RunConfig.parse(other), "passes", report.Options(data=False)
  )
  text = page_lib.render(content)
  assert "every participant in one of the 10 steps of a pass" in text
  assert "4 tasks (expected)" in text and "not independent" in text
  assert content.summary.rates[0].inclusion.high == 0.1
  assert "participant" in content.summary.guarantees


def test_without_noise_there_is_no_curve_and_epsilon_is_infinite(make, config):
  other = config.copy_and_resolve_references()
  other.mechanism.noise_multiplier = 0.0
  content = make(config=other, data=False)
  found = page_reader.Page(page_lib.render(content))
  assert [row[1] for row in found.table("One guarantee")[1:]] == ["∞"] * 3
  assert "epsilon" not in content.pictures and "no privacy" in found.text
  assert "(--nodata)" in found.text


def test_names_from_a_config_are_text_not_markup(make):
  odd = '<b>&"'
  content = make(
      config=bare(
          hierarchy=dict(sizes=(400, 5, 2), levels=(odd, "b", "c")),
          mechanism=dict(clip_unit=odd, noise_multiplier=1.0),
      )
  )
  found = page_reader.Page(page_lib.render(content))
  assert found.open == [] and "b" not in found.tags
  assert found.table("The hierarchy")[1][0] == odd


def test_a_browser_shows_every_image_and_no_page_is_too_wide(shown, tmp_path):
  chromium = shutil.which("chromium") or shutil.which("chromium-browser")
  if chromium is None:
    pytest.skip("no chromium on this machine: apt-get install chromium")
  # Frames of a phone's, a tablet's and a desk's width, measured from outside:
  # the page itself runs no script.
  text = (shown[1] / "index.html").read_text("utf-8")
  outside = tmp_path / "outside.html"
  outside.write_text(
      '<!DOCTYPE html><html><head><meta charset="utf-8"></head><body><script>\n'
      f"const text = {json.dumps(text).replace('</', chr(60) + chr(92) + '/')};"
      """
const found = [];
const widths = [360, 768, 1280];
for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.style.width = width + "px";
  frame.style.border = "0";
  frame.addEventListener("load", () => {
    const inner = frame.contentDocument;
    found.push({
      width: width,
      seen: inner.documentElement.clientWidth,
      scroll: inner.documentElement.scrollWidth,
      images: [...inner.images].map(i => [i.naturalWidth, i.width]),
      title: inner.title,
    });
    if (found.length == widths.length) {
      const out = document.createElement("pre");
      out.textContent = "FOUND" + JSON.stringify(found) + "END";
      document.body.replaceChildren(out);
    }
  });
  frame.srcdoc = text;
  document.body.append(frame);
}
</script></body></html>""",
      encoding="utf-8",
  )
  done = subprocess.run(
      [
          chromium, "--headless", "--no-sandbox", "--disable-gpu",
          "--disable-quic", "--no-first-run",
          "--disable-background-networking", "--disable-component-update",
          "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
          "--virtual-time-budget=20000", "--dump-dom", outside.as_uri(),
      ],
      capture_output=True, text=True, timeout=120, check=False,
  )
  match = re.search(r"FOUND(\[.*\])END", done.stdout)
  assert match, done.stderr[-2000:]
  found = json.loads(match[1])
  assert sorted(one["width"] for one in found) == [360, 768, 1280]
  for one in found:
    assert one["title"] == "glyphs:participants=40"
    assert one["scroll"] <= one["seen"] <= one["width"]
    assert len(one["images"]) == 34
    for natural, drawn in one["images"]:
      assert natural > 0 and 0 < drawn <= one["seen"]
