"""Made-up medical runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedhpc.medical.scores import Moment, task_records
from fedhpc.runs.records import RecordWriter

CONFIG = """seed: {seed}
rounds: 10
data: {{dataset: medical_digits}}
scenario: {{kind: novel_disease, novel_class: -1, tasks: {tasks}}}
recipe: {{name: {recipe}}}
algorithm: {{name: fedavg}}
local: {{lr: {lr}, steps: 5}}
"""


def write_run(
    place: Path,
    recipe: str,
    seed: int,
    tasks: int = 3,
    clients: int = 2,
    bonus: float = 0.0,
    lr: float = 0.1,
    reached: int | None = None,
    own: bool = False,
    untested: int | None = None,
) -> Path:
    """Made-up logits: what was trained longer ago is known less.

    Args:
        place: the run directory.
        recipe, seed, lr: for config.yaml.
        tasks, clients: how many.
        bonus: of skill.
        reached: tasks that were trained; None: all.
        own: every client has a model of its own.
        untested: task for which client 0 has no test samples.
    """
    place.mkdir(parents=True)
    (place / "config.yaml").write_text(CONFIG.format(seed=seed, recipe=recipe, tasks=tasks, lr=lr))
    rng = np.random.default_rng(seed)
    labels, groups = rng.integers(0, 3, 60), rng.integers(-1, 2, 60)
    with RecordWriter(place / "metrics.jsonl") as writer:
        for trained in range(tasks if reached is None else reached):
            moment = Moment((trained + 1) * 10, float(trained), "broadcast_next")
            for client in range(clients):
                for task in range(tasks):
                    if client == 0 and task == untested:
                        continue
                    skill = 2.0 + bonus - 0.5 * abs(trained - task)
                    logits = rng.normal(size=(60, 3)) + skill * np.eye(3)[labels]
                    writer.write_all(task_records(moment, logits, labels, groups, 2, client, task))
            logits = rng.normal(size=(60, 3)) + np.eye(3)[labels] * np.array([2, 2, float(trained)])
            for model in range(clients) if own else (None,):
                shifted = logits + (model or 0) * rng.normal(size=logits.shape)
                writer.write_all(task_records(moment, shifted, labels, groups, 2, model, None))
    return place
