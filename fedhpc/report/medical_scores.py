"""What a medical report says of a run: each score with its title, its unit and how it is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedhpc.report.ltr import backward_transfer, forgetting, imbalance_factor, last_row, mean_present
from fedhpc.report.medical import COMPAT_LTR, GROUP_GAP, HOLDOUT, LTR_GAP, MedicalRun, mean_over, numbered


@dataclass(frozen=True)
class Score:
    """One figure of a run.

    Attributes:
        title: what tables call it.
        read: run -> value, NaN where it has none.
        percent: whether it is a fraction, shown in percent.
    """

    title: str
    read: Callable[[MedicalRun], float]
    percent: bool = True


def _final_cumulative(run: MedicalRun, score: str = "ltr") -> float:
    rows = run.cumulative(score)
    return float(rows[-1]) if len(rows) else math.nan


def _last(run: MedicalRun, score: str) -> float:
    return run.over_clients(last_row, score)


def _final(run: MedicalRun, score: str) -> float:
    return run.final_holdout(score)


def _novel(run: MedicalRun, which: int) -> float:
    curves = run.novel_curves()
    return math.nan if curves is None else mean_present(curves[which][:, -1])


def _without_auc(run: MedicalRun) -> float:
    """Share of the local tasks that are tested after the last one, but have samples of one class only."""
    areas = run.local.get("auc", {})
    lacking = [
        math.isnan(area)
        for client, matrix in areas.items()
        for accuracy, area in zip(run.local["accuracy"][client][-1], matrix[-1], strict=True)
        if not math.isnan(accuracy)
    ]
    return sum(lacking) / len(lacking) if lacking else math.nan


def training_imbalance(run: MedicalRun) -> float:
    """Imbalance factor of all training samples together; NaN without scenario.json."""
    counts = training_counts(run)
    return float(imbalance_factor(np.sum(list(counts.values()), 0).tolist())) if counts else math.nan


def training_counts(run: MedicalRun) -> dict[int, np.ndarray]:
    """Client -> training samples of each class, over all its tasks; empty without scenario.json."""
    found: dict[int, np.ndarray] = {}
    for row in run.tree.get("rows", ()):
        if row["part"] == "train":
            found[row["client"]] = found.get(row["client"], 0) + np.array(row["per_class"])
    return found


MAIN = (
    Score("cumulative LTR", _final_cumulative),
    Score("last-row LTR", lambda run: run.over_clients(last_row)),
    Score("forgetting", lambda run: run.over_clients(forgetting)),
    Score("backward transfer", lambda run: run.over_clients(backward_transfer)),
    Score("hold-out LTR", partial(_final, score="ltr")),
    Score("hold-out AUC", partial(_final, score="auc")),
    Score("group gap", partial(_final, score=GROUP_GAP)),
)
"""The columns of the short table."""

DETAILS = (
    Score("hold-out accuracy", partial(_final, score="accuracy")),
    Score("hold-out LTR gap between groups", partial(_final, score=LTR_GAP)),
    Score("hold-out absent classes", partial(_final, score="absent_classes"), percent=False),
    Score("local accuracy", partial(_last, score="accuracy")),
    Score("local AUC", partial(_last, score="auc")),
    Score("local tasks of one class, without AUC", _without_auc),
    Score("local group gap", partial(_last, score=GROUP_GAP)),
    Score("local LTR gap between groups", partial(_last, score=LTR_GAP)),
    Score("local absent classes", partial(_last, score="absent_classes"), percent=False),
    Score("known classes, hold-out", partial(_novel, which=0)),
    Score("new class, hold-out", partial(_novel, which=1)),
    Score("cumulative LTR, absent class 0 (original)", partial(_final_cumulative, score=COMPAT_LTR)),
    Score("hold-out LTR, absent class 0 (original)", partial(_final, score=COMPAT_LTR)),
    Score("imbalance factor of the training tables", training_imbalance, percent=False),
)
"""What stands below it; local scores are means over clients and evaluated tasks after the last task."""

_EACH = (
    ("class_accuracy_", "class {} accuracy"),
    ("class_auc_", "class {} AUC"),
    ("group_accuracy_", "group {} accuracy"),
    ("group_ltr_", "group {} LTR"),
)


def all_scores(runs: Sequence[MedicalRun]) -> list[Score]:
    """The short table's scores, the details and one for each class and group that some run knows."""
    found = [*MAIN, *DETAILS]
    for prefix, title in _EACH:
        for place, reader in ((HOLDOUT, _final), ("", _last)):
            names = {name for run in runs for name in (run.holdout if place else run.local)}
            for number in sorted(numbered(names, place + prefix)):
                label = title.format(name_of(runs, prefix, number))
                where = "hold-out" if place else "local"
                found.append(Score(f"{where} {label}", partial(reader, score=f"{prefix}{number}")))
    return [score for score in found if score in MAIN or any(not math.isnan(score.read(run)) for run in runs)]


def name_of(runs: Sequence[MedicalRun], prefix: str, number: int) -> str:
    """A class or group as its dataset calls it."""
    key = "classes" if prefix.startswith("class") else "groups"
    for run in runs:
        names = run.tree.get(key, ())
        if number < len(names):
            return str(names[number])
    return str(number)


def mean_matrix(runs: Sequence[MedicalRun], score: str = "ltr") -> np.ndarray:
    """R[i][j], mean over clients, then runs; empty without records."""
    found = [matrix for run in runs if len(matrix := run.matrix(score))]
    return mean_over(found) if found and len({m.shape for m in found}) == 1 else np.zeros((0, 0))
