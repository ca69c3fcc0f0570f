"""Accuracy against the number L of tasks a step: Figure 6(c) of [M].

[M] is "Meta-Learning with Differential Privacy"; the task is 5-way 1-shot
Omniglot with z = 1 and k = 90, and each of 400 000 tasks is used once, so that
larger steps are fewer. Its text states the best accuracy at L of about 3000,
and a quick fall below 1000 and above 4000, where training is stopped at a
budget of (2, 1e-6): by its accountant L = 4800 and 5600 cross that, by the
tight one no point does, and all are trained to the end here. L is as the paper
counts it; a step draws the same share of the participants, of whom there are
ten times fewer at cpu scale. Intervals are over test tasks, for one key there.
"""

from experiments.targets import sweeps

_LOTS = {
    "smoke": (1600,),
    "cpu": (100, 400, 1600, 3200, 4800, 5600),
    "full": (100, 400, 800, 1600, 2400, 3200, 4000, 4800, 5600),
}

_SWEEP = sweeps.Sweep(
    points={
        scale: [sweeps.Point(lot=lot) for lot in lots]
        for scale, lots in _LOTS.items()
    },
    axis=("L, tasks a step of 400 000", True),
    x=lambda outcome: outcome["labels"]["lot"],
    line=lambda labels: f"z = {labels['noise']:g}",
    peaks={"z = 1": 3000},
)
runs, table, draw = _SWEEP.runs, _SWEEP.table, _SWEEP.draw
finding = _SWEEP.finding
