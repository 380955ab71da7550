"""A sweep that another version of the program began is not gone on with where that drew other hyperparameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedhpc.config import from_tree
from fedhpc.errors import ConfigError
from fedhpc.sweep.building import hparams_of
from fedhpc.sweep.draws import refuse_other_draws
from fedhpc.sweep.estimate import DatasetFacts
from fedhpc.sweep.plan import Plan, make_plan
from fedhpc.sweep.settings import SweepConfig
from fedhpc.sweep.trials import TrialSpec

FACTS = {"rotated_digits": DatasetFacts(("0", "15", "30", "45"), (450, 449, 449, 449), 8, 8, 1)}


@pytest.fixture(scope="module")
def plan() -> Plan:
    tree = {"datasets": ["rotated_digits"], "algorithms": ["erm", "mixup"], "n_hparams": 2, "n_trials": 1}
    return make_plan(from_tree(SweepConfig, {"sweep": tree}, "test"), FACTS)


def finish(folder: Path, spec: TrialSpec, **changed: Any) -> None:
    (folder / "queue").mkdir(exist_ok=True)
    (folder / "queue" / f"{spec.id}.done").touch()
    (folder / spec.folder).mkdir(parents=True)
    done = {"spec": spec.full_dict(), "hparams": {**hparams_of(spec), **changed}}
    (folder / spec.folder / "done").write_text(json.dumps(done), encoding="utf-8")


@pytest.mark.parametrize("hparams_seed", [0, 1])
def test_other_draws_are_refused_with_what_differs(hparams_seed: int, plan: Plan, tmp_path: Path) -> None:
    refuse_other_draws(tmp_path, plan)
    for spec in plan.trials:
        if spec.algorithm == "erm" or spec.hparams_seed != hparams_seed:
            finish(tmp_path, spec)
    refuse_other_draws(tmp_path, plan)
    mixed = [t for t in plan.trials if t.algorithm == "mixup" and t.hparams_seed == hparams_seed]
    for spec in mixed:
        finish(tmp_path, spec, mixup_alpha=0.3)
    with pytest.raises(
        ConfigError, match=r"mixup_alpha = 0\.3, which this version draws as .*another --out, or remove"
    ):
        refuse_other_draws(tmp_path, plan)
    for spec in mixed:
        (tmp_path / spec.folder / "done").unlink()
    refuse_other_draws(tmp_path, plan)
