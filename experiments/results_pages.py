"""The pages of experiments/results, made from the JSON files that lie there.

  python -m experiments.reproduce --write

Every JSON file of a target becomes a page; README.md is the one table to read
first, and a line for each page. No number is written by hand: what a page says
is computed from its JSON, or by the accountant.
"""

from collections.abc import Mapping
import inspect
import json
import os
import pathlib
import textwrap
from types import ModuleType
from typing import Any

from episodic_dp.analysis import membership_attack
from episodic_dp.auditing import audit as audit_lib
from episodic_dp.output import files
from episodic_dp.output import plotting
from episodic_dp.output import tables
from experiments import overview
from experiments import targets

FOLDER = pathlib.Path(__file__).parent / "results"
_KEYS = ("key", "seed")


def write(folder: str | os.PathLike = FOLDER) -> list[str]:
  """Writes README.md and TARGET.md, and pictures that are missing.

  Returns:
    the names of the files.

  Raises:
    ValueError: the folder has no results, or a file is damaged.
  """
  made = pages(folder)
  for name, text in made.items():
    files.write_text(pathlib.Path(folder) / name, text)
  drawn = []
  for name, stored in _stored(folder).items():
    path = pathlib.Path(folder) / f"{name}.png"
    if "target" in stored and not path.exists():
      plotting.save(picture(targets.load(name), stored["runs"]), path)
      drawn.append(path.name)
  return [*made, *drawn]


def pages(folder: str | os.PathLike = FOLDER) -> dict[str, str]:
  """File name -> text of every page, as they should be."""
  stored = _stored(folder)
  made, findings = {}, {}
  for name, found in stored.items():
    if "target" in found:
      made_by = targets.load(name)
      made[f"{name}.md"] = page(made_by, found)
      findings[name] = finding(made_by, found["runs"]) or _title(made_by)
    elif name == "audit":
      made["audit.md"] = _audit(found)
      findings[name] = _audited(found)
    elif name == membership_attack.NAME:
      made[f"{name}.md"] = (
          membership_attack.page(found, found["command"])
          + f"\n{_how(found)}\n"
      )
      findings[name] = _attacked(found)
  return {"README.md": overview.document(stored, findings), **made}


def _stored(folder: str | os.PathLike) -> dict[str, dict[str, Any]]:
  """What the JSON files hold, by name."""
  found = {}
  for path in sorted(pathlib.Path(folder).glob("*.json")):
    try:
      found[path.stem] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
      raise ValueError(
          f"{path} cannot be read ({type(e).__name__}): make it again by its"
          " target, or remove it"
      ) from e
  if not found:
    raise ValueError(
        f"--out={os.fspath(folder)} has no results (*.json): name the folder"
        " that a target wrote to"
    )
  return found


def page(made: ModuleType, stored: Mapping[str, Any]) -> str:
  """The page of a target: what it shows, how it was made, what it found.

  Args:
    made: the target.
    stored: what its JSON holds.
  """
  text = inspect.cleandoc(made.__doc__ or "")
  intro = text.partition("\n\n")[2]
  found = finding(made, stored["runs"])
  parts = [
      f"# {_title(made)}",
      intro,
      textwrap.fill(f"**{found}**", 80) if found else "",
      tables.markdown(*made.table(stored["runs"])),
      f"![{stored['target']}]({stored['target']}.png)",
      getattr(made, "NOTES", "").strip(),
      _how(stored),
  ]
  return "\n\n".join(filter(None, parts)) + "\n"


def _title(made: ModuleType) -> str:
  first = inspect.cleandoc(made.__doc__ or "").partition("\n\n")[0]
  return " ".join(first.split()).rstrip(".")


def finding(made: ModuleType, outcomes: Mapping[str, Any]) -> str:
  """What a target found, in a sentence; "" where it says none."""
  return made.finding(outcomes) if hasattr(made, "finding") else ""


def _how(stored: Mapping[str, Any]) -> str:
  """Command, code, device and keys, as a list."""
  runs = stored["runs"] if isinstance(stored.get("runs"), dict) else {}
  lines = [f"`{stored['command']}`"]
  codes = sorted({code for o in runs.values() for code in o.get("code", ())})
  if "committed" in stored:
    lines.append(
        f"results committed at {stored['committed']}; the code that ran is not"
        " recorded, and was that commit or an older one"
    )
  elif codes:
    lines.append(f"code: {', '.join(codes)}")
  if "device" in stored:
    lines.append(f"on {stored['device']}")
  if any({"epsilon", "epsilon_reached"} & set(o) for o in runs.values()):
    keys = {
        o["labels"][name]
        for o in runs.values() for name in _KEYS if name in o["labels"]
    }  # fmt: skip
    many = f"{len(keys)} keys a setting" if len(keys) > 1 else "one key a run"
    fixed = any(
        o.get("config", {}).get("private_seed") is not None
        for o in runs.values()
    )
    lines.append(
        f"{len(runs)} run{'s' if len(runs) > 1 else ''}, {many}"
        + (", some with a fixed private seed" if fixed else "")
    )
  return "## How it was made\n\n" + "\n".join(f"- {line}" for line in lines)


@plotting.styled
def picture(made: ModuleType, outcomes: Mapping[str, Any]) -> plotting.Figure:
  """The matplotlib figure of a target."""
  figure = plotting.figure(4.8, width=8.0)
  made.draw(outcomes, figure)
  return figure


# Pages of commands ------------------------------------------------------------


def _audit(result: dict[str, Any]) -> str:
  return f"""\
# Measured epsilon beside the claimed one

An attacker who knows all but one record tells runs with it from runs without
it; `episodic_dp/auditing/bounds.py` says what the confidence covers, and
`canaries.py` what the record is. A sound claim is never below what was
measured; it may be far above, where the runs are too few to know rates as
roughly as a small ε needs.

{textwrap.fill(f"**{_audited(result)}**", 80)}

```
{audit_lib.table(result)}
```

![claimed against measured over the steps](audit.png)

More plans, sound ones of every kind: `python -m experiments.reproduce
--target=audited_plans --scale=cpu --workdir=DIR`.

{_how(result)}
"""


def _audited(result: Mapping[str, Any]) -> str:
  rows = result["levels"]
  shares = [100 * row["share"] for row in rows]
  refuted = sum(not row["holds"] for row in rows)
  return (
      f"{result['runs']} runs with a record and as many without reach"
      f" {min(shares):.0f} to {max(shares):.0f} % of the claimed ε of"
      f" {len(rows)} levels; {refuted or 'none'} of the claims"
      f" {'are' if refuted > 1 else 'is'} refuted."
  )


def _attacked(result: Mapping[str, Any]) -> str:
  areas = [
      f"{run['participants']['auc']:.3f} ({run['name'].replace('_', ' ')})"
      for run in result["runs"]
  ]
  return (
      "Who took part, guessed from the loss after adaptation; area under the"
      f" curve, 0.5 is a blind guess: {', '.join(areas)}."
  )
