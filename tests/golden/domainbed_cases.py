"""Known answers about objectives, networks, numbers and datasets of the domain-generalization study, by content."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

OWN = Path(__file__).resolve().parent / "domainbed"


@dataclass(frozen=True)
class Case:
    """One JSON file and the arrays beside it."""

    path: Path
    facts: Any

    def arrays(self) -> dict[str, np.ndarray]:
        with np.load(self.path.with_suffix(".npz"), allow_pickle=False) as npz:
            return dict(npz)


def _is_update(facts: Any) -> bool:
    return isinstance(facts, dict) and {"algorithm", "n_updates", "results", "draws"} <= facts.keys()


def _rows_with(*keys: str) -> Callable[[Any], bool]:
    return lambda facts: isinstance(facts, list) and bool(facts) and all(set(keys) <= row.keys() for row in facts)


def _keys(*keys: str) -> Callable[[Any], bool]:
    return lambda facts: isinstance(facts, dict) and set(keys) <= facts.keys()


_KINDS: dict[str, Callable[[Any], bool]] = {
    "update_case": _is_update,
    "functions_case": _keys("mmd", "coral", "irm_penalty"),
    "random_hparams_case": _rows_with("algorithm", "dataset", "hparams", "random_seed", "name_seeds"),
    "default_hparams_case": lambda f: _rows_with("algorithm", "dataset", "hparams")(f) and "random_seed" not in f[0],
    "seed_hash_case": lambda f: _keys("cases", "rule")(f) and _rows_with("args", "md5", "value")(f["cases"]),
    "splits_case": _rows_with("n", "trial_seed", "env", "split_seed", "out"),
    "mnist_domains_case": _keys("torch_seed", "ColoredMNIST", "RotatedMNIST"),
    "mnist_cnn_case": _keys("scale", "f64_stage_shapes"),
    "resnet_case": _keys("freeze_bn=True", "channels5"),
}


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for a kind all files of that kind; with none it is skipped."""
    asked = [kind for kind in _KINDS if kind in metafunc.fixturenames]
    if not asked:
        return
    root = metafunc.config.getoption("--vectors") or OWN
    found = []
    for path in sorted(Path(root).rglob("*.json")):
        facts = json.loads(path.read_text(encoding="utf-8"))
        if _KINDS[asked[0]](facts):
            found.append(Case(path, facts))
    metafunc.parametrize(asked[0], found, ids=[str(case.path.stem) for case in found])
