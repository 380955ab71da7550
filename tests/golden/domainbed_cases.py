"""Known answers about the domain-generalization study: which files of a folder are cases, told by their content.

Names and places of files do not matter, but for two things: arrays lie beside their JSON under the same stem, and what
belongs together (an expectation, its records, its text) is told by the stem first, by content where no stem fits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

OWN = Path(__file__).resolve().parent / "domainbed"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "domainbed" / "selection"
"""Beside the repository: has somebody else's sweep, which may be read but not copied."""
_FUNCTIONS = {"mmd", "coral", "irm_penalty", "balanced_weights", "cdann_weights", "accuracy", "sqdist"}
_ROLE = re.compile(r"(_expected|_records|_sweep)$")


@dataclass(frozen=True)
class Case:
    """One file of known answers, and the folder that it was found below.

    Attributes:
        path: the file.
        facts: its content; of a file of lines a list.
        root: the folder that was searched.
    """

    path: Path
    facts: Any
    root: Path

    def arrays(self) -> dict[str, np.ndarray]:
        """What lies beside it as .npz."""
        with np.load(self.path.with_suffix(".npz"), allow_pickle=False) as npz:
            return dict(npz)

    @property
    def stem(self) -> str:
        """Its name without what says which part of a case it is."""
        return stem(self.path)


def stem(path: Path) -> str:
    """The part of a name that the files of one case share."""
    return _ROLE.sub("", path.stem)


def _keys(*keys: str) -> Callable[[Any], bool]:
    return lambda facts: isinstance(facts, dict) and set(keys) <= facts.keys()


def _rows_with(*keys: str) -> Callable[[Any], bool]:
    return lambda facts: isinstance(facts, list) and bool(facts) and all(_keys(*keys)(row) for row in facts)


_DRAWN = _rows_with("algorithm", "dataset", "hparams", "random_seed", "name_seeds")
_KINDS: dict[str, Callable[[Any], bool]] = {
    "update_case": _keys("algorithm", "n_updates", "results", "draws"),
    "functions_case": lambda f: isinstance(f, dict) and bool(f) and f.keys() - {"note"} <= _FUNCTIONS,
    "random_hparams_case": _DRAWN,
    "default_hparams_case": lambda f: _rows_with("algorithm", "dataset", "hparams")(f) and not _DRAWN(f),
    "seed_hash_case": lambda f: _keys("cases")(f) and _rows_with("args", "md5", "value")(f["cases"]),
    "splits_case": _rows_with("n", "trial_seed", "env", "split_seed", "out"),
    "mnist_domains_case": lambda f: (
        _keys("torch_seed", "n_train")(f) and bool(f.keys() & {"ColoredMNIST", "RotatedMNIST"})
    ),
    "mnist_cnn_case": _keys("scale", "f64_stage_shapes"),
    "resnet_case": lambda f: isinstance(f, dict) and any(re.match(r"freeze_bn=|channels\d", key) for key in f),
    "selection_case": _keys("methods", "total_records", "total_runs"),
    "format_mean_case": _rows_with("data", "mean", "stderr"),
    "sweep_counts_case": _keys("per_dataset", "total"),
    "sweep_jobs_case": _rows_with("request", "jobs"),
    "run_records_case": _rows_with("args", "hparams", "step"),
    "swept_records_case": _rows_with("run", "record"),
}  # fmt: skip


@lru_cache
def cases(root: Path) -> dict[str, tuple[Case, ...]]:
    """All cases below a folder, by kind."""
    found: dict[str, list[Case]] = {kind: [] for kind in _KINDS}
    for path in sorted([*root.rglob("*.json"), *root.rglob("*.jsonl")]):
        text = path.read_text(encoding="utf-8")
        facts = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
        for kind, fits in _KINDS.items():
            if fits(facts):
                found[kind].append(Case(path, facts, root))
    return {kind: tuple(of_kind) for kind, of_kind in found.items()}


def _chosen(kind: str, given: Path | None) -> Iterator[Case]:
    """The cases of the given folder; without one our copies, and what lies beside the repository but not here."""
    seen: set[str] = set()
    for root in [given] if given else [OWN, SHARED]:
        yield from (case for case in cases(root)[kind] if case.path.name not in seen)
        seen |= {case.path.name for case in cases(root)[kind]}


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for a kind all cases of that kind; with none it is skipped."""
    for kind in _KINDS:
        if kind in metafunc.fixturenames:
            found = list(_chosen(kind, metafunc.config.getoption("--vectors")))
            names = [case.path.relative_to(case.root).with_suffix("").as_posix() for case in found]
            metafunc.parametrize(kind, found, ids=names)
