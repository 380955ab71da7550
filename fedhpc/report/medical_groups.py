"""Which medical runs are repetitions of one another: the same but for their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedhpc.config import diff, other_result
from fedhpc.report.medical import TITLES, MedicalRun

_NAMED = 4
_ROOT = "data.root"


def what_differs(a: MedicalRun, b: MedicalRun) -> list[str]:
    """Dotted keys that make two runs different experiments; `data.root` where two folders hold different data."""
    keys = other_result(diff(a.config, b.config))
    digests = [run.tree.get("data") for run in (a, b)]  # runs of older versions have none
    return [_ROOT, *keys] if all(digests) and digests[0] != digests[1] else keys


def without_repeats(runs: Sequence[MedicalRun]) -> tuple[list[MedicalRun], list[str]]:
    """Leave out all but the first (finished) run of one experiment and seed, and say which."""
    kept: list[MedicalRun] = []
    notes = []
    for run in sorted(runs, key=lambda run: not run.finished):
        same = [k for k in kept if k.seed == run.seed and not what_differs(k, run)]
        if same:
            notes.append(f"{run.name} repeats {same[0].name} (same settings, seed {run.seed}): left out")
        else:
            kept.append(run)
    return [run for run in runs if run in kept], notes


def by_title(runs: Sequence[MedicalRun]) -> dict[str, list[MedicalRun]]:
    """Runs that differ in their seed only, in the paper's order; a title names what tells variants apart."""
    order = list(TITLES)
    ranked = sorted(runs, key=lambda r: (order.index(r.recipe) if r.recipe in order else len(order), r.title, r.seed))
    alike: dict[str, list[list[MedicalRun]]] = {}
    for run in ranked:
        variants = alike.setdefault(run.title, [])
        same = [v for v in variants if not what_differs(v[0], run)]
        if same:
            same[0].append(run)
        else:
            variants.append([run])
    found: dict[str, list[MedicalRun]] = {}
    for title, variants in alike.items():
        for number, variant in enumerate(variants):
            name = title + _variant(variant[0], [v[0] for v in variants])
            found[name if name not in found else f"{name} #{number + 1}"] = variant
    return found


def _variant(run: MedicalRun, variants: Sequence[MedicalRun]) -> str:
    """` (local.lr 0.1)`; empty where there is one variant."""
    keys = sorted({key for other in variants for key in what_differs(variants[0], other)})
    if not keys:
        return ""
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return f" ({', '.join(f'{key} {_at(run.config, key)}' for key in keys[:_NAMED])}{more})"


def _at(config: Mapping[str, Any], key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
