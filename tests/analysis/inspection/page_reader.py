"""Reads a page as its tests need it: tags, images, tables, links."""

import base64
from html import parser
import io

import numpy as np
from PIL import Image

_VOID = {"meta", "img", "br", "link", "input"}


class Page(parser.HTMLParser):
  """What an HTML text holds.

  Attributes:
    images: the attributes of every <img>.
    tables: of every table its caption and rows of cells.
    links: every value of href and src that is no data URI.
    tags: the names of all tags.
    open: tags that were not closed in order.
    text: all text outside <style>.
  """

  def __init__(self, text):
    super().__init__()
    self.images, self.tables, self.links, self.tags = [], [], [], []
    self.open, self.text, self.title = [], "", ""
    self.feed(text)
    self.close()

  def handle_starttag(self, tag, attrs):
    values = dict(attrs)
    self.tags.append(tag)
    if tag not in _VOID:
      self.open.append(tag)
    if tag == "img":
      self.images.append(values)
    if tag == "table":
      self.tables.append({"caption": "", "rows": []})
    if tag == "tr":
      self.tables[-1]["rows"].append([])
    if tag in ("td", "th"):
      self.tables[-1]["rows"][-1].append("")
    self.links += [
        values[name] for name in ("href", "src")
        if name in values and not values[name].startswith("data:")
    ]

  def handle_endtag(self, tag):
    assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open}"
    self.open.pop()

  def handle_data(self, data):
    inside = self.open[-1] if self.open else ""
    if inside == "style":
      return
    self.text += data
    if inside == "title":
      self.title += data
    elif inside == "caption":
      self.tables[-1]["caption"] += data
    elif inside in ("td", "th"):
      self.tables[-1]["rows"][-1][-1] += data

  def table(self, caption):
    """The rows of the table whose caption starts with these words."""
    (found,) = [t for t in self.tables if t["caption"].startswith(caption)]
    return found["rows"]


def picture(attributes):
  """The embedded PNG of an <img> as a Pillow image."""
  kind, data = attributes["src"].split(",", 1)
  assert kind == "data:image/png;base64"
  return Image.open(io.BytesIO(base64.b64decode(data)))


def task_images(page, side):
  """The bytes of every support and query image, and how many of each kind."""
  found, kinds = [], {"support": 0, "query": 0}
  for one in page.images:
    if one.get("class") in kinds:
      strip = np.asarray(picture(one).convert("L"))
      assert strip.shape[0] == side and (strip.shape[1] + 1) % (side + 1) == 0
      for x in range(0, strip.shape[1], side + 1):
        found.append(strip[:, x : x + side].tobytes())
        kinds[one["class"]] += 1
  return found, kinds
