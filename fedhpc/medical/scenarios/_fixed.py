"""From a table to a timeline: nothing twice, no patient divided, everything accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fedhpc.data.table import SampleTable
from fedhpc.data.timeline import Tasks, Timeline
from fedhpc.data.units import assign_units, of_units
from fedhpc.errors import ConfigError
from fedhpc.medical.apportion import largest_remainder
from fedhpc.medical.groups import Groups
from fedhpc.medical.kinds import SPARE, group_shares
from fedhpc.medical.scenarios._base import Scenario, stream
from fedhpc.medical.scenarios._local_tests import Dealt, cut_tasks
from fedhpc.medical.scenarios._parts import find_parts

RESERVE_TO_SKEWED = 0.3
"""Share of what the larger groups have beyond the smallest that goes to other than spare clients."""


def fixed_timeline(scenario: Scenario, table: SampleTable, seed: int) -> Timeline:
    """See `Scenario.timeline`."""
    units = scenario.units(table)
    whole = find_parts(scenario, table, units, seed)
    parts = {name: scenario.chosen(table, rows, units, seed) for name, rows in whole.rows.items()}
    unused = whole.unused
    unused.update({f"{name}: beyond the scenario": len(whole.rows[name]) - len(parts[name]) for name in parts})
    groups = scenario.find_groups(table, parts["train"])
    _keep_known(parts, groups, unused)
    kinds, homes, train, rest = _train_clients(scenario, table, units, groups, parts["train"], seed)
    unused["train: asked for by no client"] = len(rest)
    num_tasks = scenario.num_tasks(table, parts["train"])
    cells, num_cells = scenario.cells(table, groups, parts["train"])
    cut, counts = [], []
    for client, rows in enumerate(train):
        if len(rows) < num_tasks and scenario.min_task_size:
            _too_few(client, kinds[client], len(rows), num_tasks)
        sizes = np.bincount(cells[rows][cells[rows] >= 0], minlength=num_cells)
        counts.append(scenario.train_counts(sizes, num_tasks, client, stream(seed, "weights", client)))
        whole_copies = (rows,) * num_tasks if scenario.copies else None
        cut.append(whole_copies or cut_tasks(rows, cells, counts[-1], seed, "train", client))
        unused["train: asked for by no task"] += len(rows) - len(np.unique(np.concatenate(cut[-1])))
    dealt, tests = Dealt(scenario, table, units, groups, cells, train, counts, homes, seed), {}
    for name in ("validation", "test"):
        tests[name], unused[f"{name}: asked for by no client"] = dealt.tests(parts[name], name)
    if scenario.holdout == "test":
        _count_tests_once(unused, whole.rows, tests["test"], parts["holdout"])
    timeline = Timeline(
        tuple(cut),
        tests["validation"],
        tests["test"],
        parts["holdout"],
        tuple(kind + scenario.suffix(client) for client, kind in enumerate(kinds)),
        groups.ids,
        groups.names,
        {reason: count for reason, count in unused.items() if count},
        tuple(whole.notes),
    )
    return timeline.check_sizes(scenario.min_client_size, scenario.min_task_size)


def _keep_known(parts: dict[str, np.ndarray], groups: Groups, unused: Counter[str]) -> None:
    """Take samples without a group out of what clients get, in place.

    Raises:
        ConfigError: nothing to train on is left.
    """
    for name in ("train", "validation", "test"):
        known = parts[name][groups.ids[parts[name]] >= 0]
        unused[f"{name}: in no demographic group"] = len(parts[name]) - len(known)
        parts[name] = known
    if not len(parts["train"]):
        told = "; ".join(f"{count} of {reason}" for reason, count in unused.items() if count)
        raise ConfigError(f"scenario: no training samples are left (not used: {told or 'none'})")


def _count_tests_once(unused: Counter[str], whole: Mapping[str, np.ndarray], tests: Tasks, holdout: np.ndarray) -> None:
    """Where tests are the hold-out, too: count those that are in neither, in place of each part's."""
    for reason in [reason for reason in unused if reason.startswith(("test:", "holdout:"))]:
        del unused[reason]
    used = np.concatenate([holdout, *(rows for client in tests for rows in client)])
    unused["test and hold-out: in neither"] = len(np.setdiff1d(np.union1d(whole["test"], whole["holdout"]), used))


def _train_clients(
    scenario: Scenario, table: SampleTable, units: np.ndarray, groups: Groups, rows: np.ndarray, seed: int
) -> tuple[list[str], list[int], list[np.ndarray], np.ndarray]:
    """Kinds, environments (0 where they do not matter) and training samples of all clients, and what is left."""
    places = np.unique(table.environment[rows]) if scenario.by_environment else np.zeros(1, dtype=np.int64)
    here = [rows[table.environment[rows] == place] for place in places] if scenario.by_environment else [rows]
    shares = largest_remainder([len(r) for r in here], scenario.clients)
    if scenario.kinds and len(here) > 1:
        raise ConfigError("scenario.kinds can't be given with scenario.by_environment: shares are used per environment")
    kinds: list[str] = []
    homes: list[int] = []
    clients: list[np.ndarray] = []
    left = []
    for place, own, share in zip(places.tolist(), here, shares, strict=True):
        where = f" of {table.environment_names[place]}" if scenario.by_environment else ""
        _check_groups(scenario, groups, groups.sizes(own), where)
        found = scenario.client_kinds(seed, groups.num, share, place)
        wanted, by = _wanted(scenario, found, table.labels, groups, own, units)
        given, rest = assign_units(own, by, units, wanted, stream(seed, "clients", place))
        kinds += found
        homes += [place] * len(found)
        clients += given
        left.append(rest)
    return kinds, homes, clients, np.concatenate(left)


def _wanted(
    scenario: Scenario, kinds: Sequence[str], labels: np.ndarray, groups: Groups, rows: np.ndarray, units: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many samples of each stratum every client should get [K, strata], and the stratum of every sample.

    Strata are the groups, where all clients are alike one; with `even_classes` each is cut into the classes, of which
    a client gets its share of the group.
    """
    group = groups.ids if scenario.mixed else np.zeros(len(labels), dtype=np.int64)
    classes = int(labels.max(initial=0)) + 1 if scenario.even_classes else 1
    by = of_units(rows, group * classes + (labels if scenario.even_classes else 0), units)
    num = (groups.num if scenario.mixed else 1) * classes
    strata = np.bincount(by[rows], minlength=num)
    sizes = strata.reshape(-1, classes).sum(1)
    wanted = demand(kinds, sizes, scenario.leftovers == "deal", reserve=scenario.group_by == "attributes")
    shares = np.divide(strata, np.repeat(sizes, classes), out=np.zeros(num), where=strata > 0)
    return np.repeat(wanted, classes, axis=1) * shares, by


def _check_groups(scenario: Scenario, groups: Groups, sizes: np.ndarray, where: str) -> None:
    if scenario.mixed and groups.num < 2:
        told = f"only '{groups.names[0]}'" if groups.num else "none"
        raise ConfigError(
            f"scenario.groups: {list(scenario.groups)} give {told} among the training samples; skewed clients need "
            "two groups; name other attributes or set scenario.mixed: false"
        )
    if scenario.mixed and not sizes.all():
        lacking = [groups.names[g] for g in np.flatnonzero(sizes == 0)]
        raise ConfigError(
            f"scenario: no training samples{where} in the groups {lacking}; skewed clients need all groups: name other "
            "attributes or set scenario.mixed: false"
        )


def demand(kinds: Sequence[str], sizes: np.ndarray, deal: bool, reserve: bool) -> np.ndarray:
    """How many samples of each group every client should get: float64 [K, G], whose columns never exceed `sizes`.

    With `reserve`, what a group has beyond the smallest group is set aside; the rest is divided by the kinds' shares,
    scaled down group by group where they ask for too much; spare clients get the remainder and 0.7 of the reserve,
    the others 0.3 of it.

    Args:
        kinds: of the clients.
        sizes: [G] samples of each group.
        deal: hand out what remains without a spare client in equal parts to all clients that hold that group.
        reserve: see above.
    """
    num_groups = len(sizes)
    if set(kinds) == {"equal"}:
        return np.tile(sizes / len(kinds), (len(kinds), 1))
    core = np.full(num_groups, float(sizes.min())) if reserve else sizes.astype(np.float64)
    is_spare = np.array([kind == SPARE for kind in kinds])
    shares = np.array([group_shares("balanced" if kind == SPARE else kind, core.tolist()) for kind in kinds])
    wanted = np.where(is_spare[:, None], 0.0, shares * core.sum() / len(kinds))
    wanted *= np.minimum(1.0, np.divide(core, wanted.sum(0), out=np.ones(num_groups), where=wanted.sum(0) > 0))
    holds = shares > 0
    given = _even(core - wanted.sum(0), holds & is_spare[:, None])
    extra = sizes - core
    part = RESERVE_TO_SKEWED if is_spare.any() else 1.0
    part = part if not is_spare.all() else 0.0
    given += _even(part * extra, holds & ~is_spare[:, None]) + _even((1 - part) * extra, holds & is_spare[:, None])
    wanted = wanted + given
    return wanted + _even(sizes - wanted.sum(0), holds) if deal else wanted


def _even(amounts: np.ndarray, takers: np.ndarray) -> np.ndarray:
    """Divide each group's amount evenly among its takers [K, G]; nothing where there are none."""
    num = takers.sum(0)
    return takers * np.divide(amounts, num, out=np.zeros(len(amounts)), where=num > 0)


def _too_few(client: int, kind: str, num: int, num_tasks: int) -> None:
    raise ConfigError(
        f"scenario: client {client} ({kind}) has {num} training samples for {num_tasks} tasks; "
        "ask for fewer clients or tasks"
    )
