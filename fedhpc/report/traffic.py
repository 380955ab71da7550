"""Who sent how much in which collective, and how long it took: per node, as text and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from fedhpc.report.collect import RunSummary
from fedhpc.report.tally import Collective

_MOST_NODES = 8
_TITLES = ("node", "collective", "calls", "bytes", "seconds", "share (%)")


def traffic_table(run: RunSummary) -> str:
    """The nodes of a run that stood longest in collectives, and what they did there; empty for one process alone."""
    if run.ranks == 1 or not run.collectives:
        return ""
    seconds: dict[str, float] = {}
    for row in run.collectives:
        seconds[row.host] = seconds.get(row.host, 0.0) + row.seconds
    shown = sorted(seconds, key=lambda host: (-seconds[host], host))[:_MOST_NODES]
    rows = [row for host in shown for row in run.collectives if row.host == host]
    lines = [_TITLES, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_TITLES))]
    text = [
        "  ".join(t.ljust(w) if i < 2 else t.rjust(w) for i, (t, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    ]
    more = len(seconds) - len(shown)
    return "\n".join(["", *text, *([f"and {more} more node(s): see traffic.csv"] if more else [])]) + "\n"


def _cells(row: Collective) -> tuple[str, ...]:
    share = "-" if row.share is None else f"{100 * row.share:.1f}"
    return (row.host, row.collective, str(row.calls), str(row.bytes), f"{row.seconds:.3g}", share)


def traffic_csv(runs: Sequence[RunSummary]) -> str:
    """One line per run, node and collective; empty where no run recorded any."""
    if not any(run.collectives for run in runs):
        return ""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run", "node", "collective", "calls", "bytes", "seconds", "share"])
    for run in runs:
        for row in run.collectives:
            share = "" if row.share is None else row.share
            writer.writerow([run.name, row.host, row.collective, row.calls, row.bytes, row.seconds, share])
    return out.getvalue()
