"""A timeline in words and numbers: who holds what in which task."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedhpc.data.table import SampleTable
from fedhpc.data.timeline import PARTS, Timeline
from fedhpc.report.ltr import imbalance_factor


def scenario_tree(timeline: Timeline, table: SampleTable, units: np.ndarray) -> dict[str, Any]:
    """Everything that can be counted, as plain values for JSON; `units` int64 [num_samples] (`Scenario.units`)."""
    return {
        "clients": timeline.num_clients,
        "tasks": timeline.num_tasks,
        "groups": list(timeline.group_names),
        "classes": list(table.class_names),
        "rows": timeline.counts(table),
        "holdout": {"num": len(timeline.holdout), **timeline.counted(timeline.holdout, table)},
        "unused": dict(timeline.unused),
        "duplicates": timeline.duplicates(),
        "shared_units": {
            "train": timeline.shared_units(units),
            "all parts": timeline.shared_units(units, PARTS),
        },
        "notes": list(timeline.notes),
    }


def text_table(tree: dict[str, Any]) -> str:
    """The tree as a table: a line per client and task, and what became of the other samples."""
    groups = [f"{number}: {name}" for number, name in enumerate(tree["groups"])]
    lines = [f"{tree['clients']} clients, {tree['tasks']} tasks; groups {'; '.join(groups)}"]
    lines += [f"classes {'; '.join(f'{number}: {name}' for number, name in enumerate(tree['classes']))}", ""]
    lines += _grid([_HEADER, *(_line(rows) for rows in _by_task(tree["rows"]))])
    lines += ["", *_totals(tree)]
    return "\n".join(lines) + "\n"


def cells_csv(tree: dict[str, Any]) -> str:
    """One line per client, task, part, group and class that has samples; the hold-out's without client and task."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("client", "kind", "task", "part", "group", "class", "samples"))
    holdout = {"client": "", "kind": "", "task": "", "part": "hold-out", **tree["holdout"]}
    for row in (*tree["rows"], holdout):
        where = [row["client"], row["kind"], "" if row["task"] == "" else row["task"] + 1, row["part"]]
        for group, counts in zip(tree["groups"], row["per_group_and_class"], strict=True):
            found = [(name, count) for name, count in zip(tree["classes"], counts, strict=True) if count]
            writer.writerows([*where, group, name, count] for name, count in found)
    return out.getvalue()


_HEADER = ("client", "kind", "task", "train", "groups", "classes", "imbalance", "validation", "test", "test groups")


def _by_task(rows: Sequence[dict[str, Any]]) -> list[dict[str, dict[str, Any]]]:
    """The parts of each client's task together."""
    found: dict[tuple[int, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["client"], row["task"]), {})[row["part"]] = row
    return list(found.values())


def _line(parts: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    train, test = parts["train"], parts["test"]
    factor = imbalance_factor(train["per_class"])
    return (
        str(train["client"]),
        train["kind"],
        str(train["task"] + 1),
        str(train["num"]),
        _slashes(train["per_group"]),
        _slashes(train["per_class"]),
        f"{factor:.1f}" if np.isfinite(factor) else "-",
        str(parts["validation"]["num"]),
        str(test["num"]),
        _slashes(test["per_group"]),
    )


def _totals(tree: dict[str, Any]) -> list[str]:
    totals = {part: sum(row["num"] for row in tree["rows"] if row["part"] == part) for part in PARTS}
    lines = ["samples: " + ", ".join(f"{part} {count}" for part, count in totals.items())]
    lines[0] += f", hold-out {tree['holdout']['num']}"
    lines += _local_tests([row for row in tree["rows"] if row["part"] == "test" and row["num"]])
    lines += [f"not used: {count} of {reason}" for reason, count in tree["unused"].items()] or ["not used: none"]
    lines += [f"used more than once: {count} ({part})" for part, count in tree["duplicates"].items() if count]
    shared = tree["shared_units"]
    several = [f"units in several clients: {count} ({part})" for part, count in shared.items() if count]
    lines += several or ["units in several clients: none"]
    return lines + [f"note: {note}" for note in tree["notes"]]


def _local_tests(rows: Sequence[dict[str, Any]]) -> list[str]:
    """How coarse scores on local tests are."""
    if not rows:
        return []
    sizes, there = [row["num"] for row in rows], [np.count_nonzero(row["per_class"]) for row in rows]
    classes = f"{np.mean(there):.1f} of {len(rows[0]['per_class'])} classes on average"
    return [f"local test tasks: {min(sizes)} to {max(sizes)} samples, {classes}"]


def _slashes(counts: Sequence[int]) -> str:
    return "/".join(map(str, counts))


def _grid(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    padded = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    ]
    return [padded[0], "  ".join("-" * width for width in widths), *padded[1:]]
