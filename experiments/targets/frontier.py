"""Compare the settings of Table 3 on CIFAR-FS's classes for validation."""

import dataclasses
from typing import Any

from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels
from experiments.targets import table3

# Setting -> classes and images of a class in a training task, and other fields.
# The first one is the setting of the others but for what they name.
_SETTINGS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "5 classes of 3 images, all in turn as support": (5, 3, {}),
    "the first image as support": (5, 3, {"learner.rotate_support": False}),
    "5 classes of 7 images": (5, 7, {}),
    "10 classes of 2 images": (10, 2, {}),
    "20 classes of 2 images": (20, 2, {}),
    "a third of the rate": (5, 3, {
        "optimizer.rate": 0.003, "optimizer.final_rate": 0.0003,
    }),
}
# Scale -> expected tasks of a step, and steps.
_SIZES = {"cpu": (400, 60), "full": (3200, 125)}


def runs(scale: str) -> list[runs_lib.Run]:
  """Return every key of every setting; a trial is of built-in data."""
  if scale == "smoke":
    return [dataclasses.replace(
        table3.runs(scale)[0], labels=dict(setting="a trial", key=0),
        on_validation=True,
    )]
  tasks, steps = _SIZES[scale]
  found = []
  for number, (setting, (way, images, fields)) in enumerate(_SETTINGS.items()):
    model = dict(
        data="cifar_fs", way=5, further=[(5, 5)], participants=400_000,
        tasks=tasks, steps=steps,
        arguments=dict(width=32, way=way, query=images - 1),
        overrides=table3.COLOURED | {"evaluation.way": 5} | fields,
    )
    for key in range(table3.KEYS):
      run = table3.run_of(model, "scenes", table3.EPSILON, key)
      found.append(dataclasses.replace(
          run,
          overrides={**run.overrides, **fields, "evaluation.every": steps},
          name=f"frontier_{number}_{key}",
          labels=dict(setting=setting, key=key),
          on_validation=True,
          controls=False,
      ))
  return found


TARGETS = {
    "frontier": panels.Target(
        title="What each setting of Table 3 brings, on classes for validation",
        about="""\
CIFAR-FS 5-way, prototypical networks on a Conv4 of width 32, by the settings of
[Table 3](table3.md) for coloured images: each line of the table changes one of
them. All runs sample as many tasks and spend the same ε for a participant, at
δ = 1e-6, so only the settings differ. The accuracy is that of the last
checkpoint on 600 tasks of the 16 classes for validation; no test class was
seen.""",
        notes="""\
The picture is of tasks with one image of a class. The means are over keys, with
the lowest and the highest in brackets. More images of a class cost a
participant no privacy, and cost time. The runs are short: they sample a
sixteenth of Table 3's tasks.

Rows of version 3 begin with the public start and tasks of five classes of three
images; each of the others names what it changes. More classes of fewer images,
or a third of the rate, gain nothing with one image and no more than keys differ
with five. Twenty classes take 2.5 times as long. (For Omniglot they gained: see
Table 3.) Seven images take 2.4 times as long and gain 0.2 points with one image
and 0.6 with five; in runs of Table 3's length they gain more, and it takes them
for CIFAR-FS. Their commit ends in "-dirty": the tree had a change that these
runs did not use.

Two trials, of three keys each, gained nothing and are no option of the library.
If an image is also compared with the means of all other images of its class
(leave-one-out prototypes, half of the loss), seven images end at 41.2 % with
one image and at 55.2 % with five. With weight decay of 0.3 a step of rate 1,
three images end at 40.4 and 54.0 %.

Rows of version 2.0 begin with random weights, or with the start of 2.0, where
training only scales and shifts gains less than training all weights. Training
only low ranks gained less too, 37.0 % (one image) and 49.5 % (five): they were
last in commit b26b9922.

`RandomAllocation` in place of `Poisson` needs less noise for the same ε of a
participant. With ε = 0.5 and δ = 1e-6 the noise multiplier is 1.269 in place of
1.352 for mini-ImageNet's 250 steps, each participant being in two, 0.869 in
place of 0.879 for the 500 of CIFAR-FS, and 0.844 in place of 0.850 for the 250
of Omniglot. Table 3 uses it for mini-ImageNet. What two views of an image bring
is [another page](../../docs/decisions/prediction.md).""",
        runs=runs,
        draw=panels.dotted(
            lambda o: o["labels"]["setting"],
            lambda o: f"key {o['labels']['key']}",
            of="validation",
        ),
        table=panels.tabled({
            "setting": panels.label("setting"),
            "1 image": panels.accuracy,
            "5 images": lambda same: panels.accuracy(
                [table3.of_task(outcome, 5, 5) for outcome in same]
            ),
            "untrained, 1 image": panels.untrained,
            "tasks, expected": lambda same: f"{table3.tasks(same):,}",
            budgets.EPSILON: budgets.spent,
            "keys": lambda same: str(len(same)),
            "of CPU time": panels.cpu_seconds,
        }, "key"),
    )
}
