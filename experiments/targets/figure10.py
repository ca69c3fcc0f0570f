"""Accuracy over tasks a step, L, and noise, z: Figure 10 of [M].

[M] is "Meta-Learning with Differential Privacy"; the task is 5-way 1-shot
Omniglot, k = 90, each of 400 000 tasks used once. Its text states that accuracy
peaks at L = 1600 for z = 1, 3200 for z = 2 and 4800 for z = 3, and that for
z = 1 it falls from L = 4800 on because the privacy budget is drained. By the
tight accountant nothing is drained (the table has both), and all points are
trained to the end. L is as the paper counts it; a step draws the same share of
the participants, of whom there are ten times fewer at cpu scale. Intervals are
over test tasks, for one key there; the table claims an order where they
separate, and nowhere else.
"""

from experiments.targets import sweeps

_GRID: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "smoke": ((1600,), (1,)),
    # z = 1 is that of figure 6(c), L = 1600 that of figure 7.
    "cpu": ((1600, 3200, 4800), (1, 2, 3)),
    "full": ((800, 1600, 3200, 4800, 6400), (1, 2, 3)),
}

_SWEEP = sweeps.Sweep(
    points={
        scale: [sweeps.Point(lot=lot, noise=z) for z in noises for lot in lots]
        for scale, (lots, noises) in _GRID.items()
    },
    axis=("L, tasks a step of 400 000", True),
    x=lambda outcome: outcome["labels"]["lot"],
    line=lambda labels: f"z = {labels['noise']:g}",
    peaks={"z = 1": 1600, "z = 2": 3200, "z = 3": 4800},
)
runs, table, draw = _SWEEP.runs, _SWEEP.table, _SWEEP.draw
finding = _SWEEP.finding
