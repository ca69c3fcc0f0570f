"""docs/accountant.md: what it runs prints what it shows, without JAX."""

import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "accountant.md"


def test_its_code_prints_what_the_page_shows():
  text = PAGE.read_text()
  codes = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
  shown = re.findall(r"```\n\n```\n(.*?)```", text, re.DOTALL)
  assert len(codes) == len(shown) == 3
  # DP-SGD in six lines, users in ten.
  lengths = [len(code.splitlines()) for code in codes[:2]]
  assert lengths == [6, 10]
  assert all(len(x) <= 80 for code in codes for x in code.splitlines())
  larger = (
      "r = dp_sgd.replace(plan=plan.SamplingPlan((plan.FixedSize(256),)))\n"
      'print(accounting.guarantee(r, steps=14_000, delta=1e-5, level="image"))'
  )
  code = "\n".join([codes[0], larger, *codes[1:]])
  found = subprocess.run(
      [sys.executable, "-c", code], capture_output=True, text=True, check=True
  ).stdout.splitlines()
  assert found.pop(1).startswith("image: epsilon 14.69 at")
  assert "makes 14.69 of the first number" in text
  assert found == "".join(shown).splitlines()
