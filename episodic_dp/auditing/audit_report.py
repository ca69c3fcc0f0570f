"""An audit for people: its table, and the sentence where a claim is refuted."""

from typing import Any

from episodic_dp.accounting import report
from episodic_dp.output import tables


def table(result: dict[str, Any]) -> str:
  """The result of `audit`, for people."""
  header = (
      "level", "claimed", "measured", "share", "delta", "confidence",
      "direction", "neighbours",
  )
  rows = []
  for row in result["levels"]:
    rows.append((
        row["level"],
        report.rounded_up(row["claimed"]),
        f"{row['measured']:.4g}",
        "-" if row["share"] is None else f"{100 * row['share']:.0f} %",
        f"{result['delta']:g}",
        f"{100 * result['confidence']:g} %",
        row["bound"]["direction"],
        row["neighbours"],
    ))
  lines = [
      f"{result['steps']} steps, noise multiplier"
      f" {result['noise_multiplier']:g} per {result['clip_unit']}",
      " > ".join(result["stages"]),
      "",
      tables.text(header, rows),
      "",
      "claimed: epsilon by the accountant, at most;",
      f"measured: epsilon by {_how(result)}, at least;",
      "all measured ones hold together at the confidence.",
      "",
      "Attacked in place of the whole, at the same rates and distances:",
      *(f"  {row['level']}: {row['attacked']}" for row in result["levels"]),
  ]
  for name, sentence in result["not_audited"].items():
    lines += ["", f"{name}: not audited", f"  {sentence}"]
  lines += ["", "The claim assumes:"]
  shared: list[str] = []
  for row in result["levels"]:
    shared += [s for s in row["assumptions"] if s not in shared]
  lines += [f"  - {sentence}" for sentence in shared]
  return "\n".join(lines)


def _how(result: dict[str, Any]) -> str:
  if result["method"] == "one":
    return f"one run with {result['canaries']} worst-case canaries"
  kind = "worst-case" if result["canary"] == "worst" else "natural"
  return f"{result['runs']} runs with a {kind} record, as many without"


def verdict(result: dict[str, Any]) -> str | None:
  """One sentence where a claim is refuted, else None."""
  wrong = [row for row in result["levels"] if not row["holds"]]
  if not wrong:
    return None
  return "; ".join(
      f"the claim for level '{row['level']}' is refuted: epsilon is at least"
      f" {row['measured']:.4g} at delta {result['delta']:g} (confidence"
      f" {100 * result['confidence']:g} %), and {row['claimed']:.4g} is claimed"
      for row in wrong
  )
