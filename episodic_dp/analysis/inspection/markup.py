"""Tables and embedded images as HTML."""

import base64
from collections.abc import Sequence
import dataclasses
import html
import struct

from episodic_dp.output import quoting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
  """A picture of the page, which is a PNG file beside it too.

  Attributes:
    file: its name.
    data: the PNG.
    alt: what it shows, for those who do not see it.
    caption: stands below it.
  """

  file: str
  data: bytes
  alt: str
  caption: str


def escaped(value: str) -> str:
  """Words as HTML, whatever names are in them."""
  return html.escape(quoting.printable(value))


def table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
  """A table; a row that is too short gives its last cell the rest."""
  names = "".join(f'<th scope="col">{escaped(name)}</th>' for name in head)
  lines = []
  for first, *rest in rows:
    cells = [f'<th scope="row">{escaped(first)}</th>']
    for i, value in enumerate(rest):
      missing = len(head) - len(rest)  # 1 for a row that is full.
      span = missing if i == len(rest) - 1 else 1
      kind = f' class="reason" colspan="{span}"' if span > 1 else ""
      cells.append(
          f'<td{kind} data-label="{escaped(head[i + 1])}">'
          f"{escaped(value)}</td>"
      )
    lines.append(f"<tr>{''.join(cells)}</tr>")
  # Reachable by keyboard, since a wide table scrolls inside its box.
  return (
      f'<div class="wide" tabindex="0" role="region" aria-label="{caption}">'
      f"<table><caption>{caption}</caption><thead><tr>{names}</tr></thead>"
      f"<tbody>{''.join(lines)}</tbody></table></div>"
  )


def picture(shown: Picture) -> str:
  """A picture with its caption."""
  return (
      f'<figure class="picture">{img(shown.data, shown.alt)}'
      f"<figcaption>{escaped(shown.caption)}</figcaption></figure>"
  )


def img(data: bytes, alt: str, more: str = "") -> str:
  """An image that carries its PNG and its size."""
  width, height = struct.unpack(">II", data[16:24])  # PNG's first chunk.
  text = base64.b64encode(data).decode("ascii")
  return (
      f'<img{more} width="{width}" height="{height}" alt="{escaped(alt)}"'
      f' src="data:image/png;base64,{text}">'
  )
