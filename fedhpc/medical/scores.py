"""Records of one evaluation: long-tail scores per class and group, of a client's task or of the hold-out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedhpc.report import ltr
from fedhpc.report.medical import HOLDOUT
from fedhpc.runs.records import Record


@dataclass(frozen=True)
class Moment:
    """When and of which model something was evaluated.

    Attributes:
        round: rounds done, all tasks counted.
        seconds: the training clock.
        model: name of the evaluated model.
    """

    round: int
    seconds: float
    model: str


def task_records(
    moment: Moment,
    logits: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray,
    num_groups: int,
    client: int | None,
    task: int | None,
) -> Iterator[Record]:
    """Scores of one client's task (`task` given) or of the hold-out (`task` None).

    Args:
        moment: see `Moment`.
        logits: float [N, C].
        labels: int [N].
        groups: int [N], -1 for none.
        num_groups: number of groups.
        client: whose model; None for the common one.
        task: number of the evaluated task.
    """
    num_classes = logits.shape[1]
    counts = ltr.Counts.of(ltr.predicted(logits), labels, groups, num_classes, num_groups)
    shares = ltr.softmax(logits)
    area, _ = ltr.auc(shares, labels)
    values = {
        "ltr": counts.ltr,
        "accuracy": counts.accuracy,
        "auc": area,
        "loss": ltr.cross_entropy(logits, labels) if len(labels) else math.nan,
        "absent_classes": float(len(counts.absent_classes)),
        **{f"class_accuracy_{c}": float(v) for c, v in enumerate(counts.per_class)},
        **{f"class_auc_{c}": float(v) for c, v in enumerate(ltr.per_class_auc(shares, labels))},
        **{f"group_accuracy_{g}": float(v) for g, v in enumerate(counts.per_group)},
        **{f"group_ltr_{g}": float(v) for g, v in enumerate(counts.ltr_per_group)},
    }
    units = {"loss": "nats", "absent_classes": "classes", "auc": "area"}
    prefix = HOLDOUT if task is None else ""
    for what, value in values.items():
        yield Record(
            prefix + what,
            value,
            "area" if "_auc_" in what else units.get(what, "fraction"),
            moment.round,
            moment.seconds,
            client=client,
            task=task,
            model=moment.model,
        )
