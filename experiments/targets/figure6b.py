"""Accuracy against the noise multiplier z: Figure 6(b) of [M].

[M] is "Meta-Learning with Differential Privacy"; the task is 5-way 1-shot
Omniglot with L = 1600 tasks a step and the clip norm at the 90th percentile of
the gradient norms. Its text states 93.0 % at z = 1 and about 73 % from where
the curve is flat. Here the percentile is followed through a noised count, so
that the ε of a participant holds. At cpu scale the network is narrow and its
participants are ten times fewer, so that the noise, of norm √weights · z · C,
stands to the sum of L gradients about as it does in the paper. A participant is
a task of images that are public and recur: nothing is guaranteed for an
image. Intervals are over test tasks, for
one key: another key's noise can move a point by more.
"""

from experiments.targets import sweeps

_NOISES = {
    "smoke": (1,),
    "cpu": (1, 2, 3, 5, 7, 10),
    "full": tuple(range(1, 11)),
}

_SWEEP = sweeps.Sweep(
    points={
        scale: [sweeps.Point(noise=z) for z in noises]
        for scale, noises in _NOISES.items()
    },
    axis=("noise multiplier z", False),
    x=lambda outcome: outcome["labels"]["noise"],
    line=lambda labels: f"L = {labels['lot']}, k = {labels['k']:g}",
    values={1: 93.0, 10: 73.0},
)
runs, table, draw = _SWEEP.runs, _SWEEP.table, _SWEEP.draw
finding = _SWEEP.finding
