"""The site builds strictly, loads nothing from elsewhere, and fits."""

import functools
import html.parser
import http.server
import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("mkdocs", reason="pip install '.[docs]'")

pytestmark = pytest.mark.slow  # Builds all pages.

ROOT = pathlib.Path(__file__).parents[2]
WIDTHS = (360, 800, 1400)
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
    "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
# Asks for nothing but the page: what scrolls sideways, what is no picture, and
# where things were loaded from.
_MEASURE = """
const root = document.documentElement;
return {
  scroll: root.scrollWidth,
  seen: root.clientWidth,
  broken: [...document.images].filter(i => !i.naturalWidth).map(i => i.src),
  loaded: performance.getEntriesByType("resource").map(e => e.name),
};
"""


# Widths change in one step, not in a quarter of a second.
_STILL = """
const still = document.createElement("style");
still.textContent = "* { transition: none !important; }";
document.head.append(still);
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
  out = tmp_path_factory.mktemp("site")
  done = subprocess.run(
      [
          sys.executable, "-m", "mkdocs", "build", "--strict",
          f"--site-dir={out}",
      ],
      cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
      env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
  )  # fmt: skip
  assert done.returncode == 0, done.stderr[-4000:]
  return out


@pytest.fixture(scope="module")
def served(site):
  """The site's address while the tests run."""

  class Quiet(http.server.SimpleHTTPRequestHandler):

    def log_message(self, *args):
      pass

  handler = functools.partial(Quiet, directory=str(site))
  server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
  thread = threading.Thread(target=server.serve_forever)
  thread.start()
  yield f"http://127.0.0.1:{server.server_port}"
  server.shutdown()
  thread.join()
  server.server_close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
  chromium = shutil.which("chromium") or shutil.which("chromium-browser")
  driver = shutil.which("chromedriver")
  if chromium is None or driver is None:
    pytest.skip("no chromium: apt-get install chromium chromium-driver")
  webdriver = pytest.importorskip(
      "selenium.webdriver", reason="pip install '.[docs]'"
  )
  options = webdriver.ChromeOptions()
  options.binary_location = chromium
  profile = tmp_path_factory.mktemp("profile")
  for option in (*_OPTIONS, f"--user-data-dir={profile}"):
    options.add_argument(option)
  options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
  found = webdriver.Chrome(
      options=options, service=webdriver.ChromeService(driver)
  )
  yield found
  found.quit()


class _Read(html.parser.HTMLParser):
  """The text outside code, and what a page loads."""

  def __init__(self, text):
    super().__init__()
    self.loads, self.prose, self._inside = [], [], []
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    given = dict(attrs)
    if tag in ("img", "script", "iframe", "source", "video"):
      self.loads.append(given.get("src") or "")
    if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
      self.loads.append(given.get("href") or "")
    if tag in ("code", "pre", "script", "style"):
      self._inside.append(tag)

  def handle_endtag(self, tag):
    if self._inside and self._inside[-1] == tag:
      self._inside.pop()

  def handle_data(self, data):
    if not self._inside:
      self.prose.append(data)


def test_no_page_asks_another_host_for_anything(site):
  pages = sorted(site.rglob("*.html"))
  assert len(pages) > 50
  for page in pages:
    loads = _Read(page.read_text("utf-8")).loads
    assert len(loads) > 3
    assert [x for x in loads if re.match(r"(https?:)?//", x)] == [], page
  for sheet in site.rglob("*.css"):
    assert not re.search(r"url\([\"']?(https?:)?//", sheet.read_text("utf-8"))


def test_the_reference_has_every_public_name(site):
  for page in sorted((site / "api").glob("*.html")):
    module = importlib.import_module(f"episodic_dp.{page.stem}")
    ids = re.findall(r' id="([^"]+)"', page.read_text("utf-8"))
    assert {f"{module.__name__}.{x}" for x in module.__all__} <= {*ids}


def test_markup_is_read_as_code_hosts_read_it(site):
  # What Markdown passes over stands in the text: signs of lists, of tables, of
  # formulas.
  odd = r"(?m)^\s*([-*] \w|\|.*\|$)|\$\\?\w|\*\*\w|\]\(|\\[a-z]{2,}"
  for page in sorted(site.rglob("*.html")):
    text = "".join(_Read(page.read_text("utf-8")).prose)
    found = re.search(odd, text)
    assert not found, f"{page.relative_to(site)}: {found and found[0]!r}"


@pytest.mark.parametrize("opened", ["served", "as files"])
def test_the_search_finds_a_page(site, served, browser, opened):
  address = served if opened == "served" else site.as_uri()
  browser.get(f"{address}/decisions/index.html?q=noise+multiplier")
  found = "[...document.querySelectorAll('.md-search-result__link')].length"
  until = time.monotonic() + 30
  while not browser.execute_script(f"return {found}"):
    assert time.monotonic() < until
    time.sleep(0.2)
  assert browser.get_log("browser") == []


def test_pages_render_without_errors_and_fit(site, served, browser):
  # Every page would read the whole index of the search.
  index = site / "search" / "search_index.json"
  index.write_text(json.dumps(json.loads(index.read_text()) | {"docs": []}))
  pages = sorted(site.rglob("*.html"))
  for page in pages:
    name = page.relative_to(site).as_posix()
    if name == "404.html":  # Names its files from the root of a host.
      continue
    browser.get(f"{served}/{name}")
    browser.execute_script(_STILL)
    for width in WIDTHS:
      browser.execute_cdp_cmd(
          "Emulation.setDeviceMetricsOverride",
          {"width": width, "height": 900, "deviceScaleFactor": 1,
           "mobile": False},
      )  # fmt: skip
      found = browser.execute_script(_MEASURE)
      assert found["scroll"] <= found["seen"] == width, (name, found)
      assert found["broken"] == [], name
    assert all(x.startswith(served) for x in found["loaded"]), name
    errors = [x for x in browser.get_log("browser") if x["level"] != "INFO"]
    assert errors == [], name


def test_a_page_that_is_too_wide_would_be_seen(site, served, browser):
  (site / "wide.html").write_text(
      "<div style='width: 2000px'>x</div><script>nothing()</script>"
  )
  browser.get(f"{served}/wide.html")
  found = browser.execute_script(_MEASURE)
  (site / "wide.html").unlink()
  assert found["scroll"] > found["seen"]
  assert any("nothing" in x["message"] for x in browser.get_log("browser"))
