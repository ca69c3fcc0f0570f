"""Nothing is compiled after a run's first step, whatever is drawn."""

import jax

from episodic_dp import private
from episodic_dp.training import compilation
from tests.training import tiny_run


def test_programs_are_counted():
  with compilation.Compilations() as found:
    jax.jit(lambda x: x + 12345)(1.0)
  assert found.count == 1 and found.seconds > 0
  jax.jit(lambda x: x + 54321)(1.0)
  assert found.count == 1  # It no longer listens.


def test_a_run_compiles_before_its_first_step_alone(
    tmp_path, monkeypatch, caplog
):
  """Validation in every step, 22 Poisson draws, stopped and gone on with."""
  made = private.make_meta_step
  counts, compiled, drawn = [], [], []

  def recording(*args, **kwargs):
    step = made(*args, **kwargs)

    def call(state):
      before = found.count
      state, metrics = step(state)
      drawn.append(int(metrics["private/tasks"]))
      counts.append((before, found.count))
      return state, metrics

    def compile_step(state):
      before = found.count
      step.compile(state)
      compiled.append(found.count - before)

    call.traced, call.compile = step.traced, compile_step
    return call

  monkeypatch.setattr(private, "make_meta_step", recording)
  for steps in (11, 22):
    counts.clear()
    spec = tiny_run.spec(
        steps, diagnostics=True, evaluate_every=1, checkpoint_every=50
    )
    # absl's own logger too: another test may have set its level.
    caplog.set_level("INFO", logger="absl")
    with compilation.Compilations() as found:
      tiny_run.train(spec, tmp_path)
    (before, after), *others = counts
    assert len(others) == 10 and before == after
    # Neither a step, nor what stands between two, nor what ends the run.
    assert set(others) == {(found.count, found.count)}
  assert compiled[1] == 1  # Of the resumed run: its step.
  assert len(set(drawn)) > 3
  told = [r.message for r in caplog.records if "compiled in" in r.message]
  assert [text.partition(":")[0] for text in told] == ["step 1", "step 12"]
  assert "1 program compiled in" in told[1] and "in 0.0 s" not in told[0]
