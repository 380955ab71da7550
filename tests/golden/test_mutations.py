"""Each bug of the mutation table, injected into the real engine, is told from the right program as the table says.

Most of them leave the first round untouched, some the first two: that is why every round is compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import fl_cases
import numpy as np
import pytest
from folders import HERE

from fedhpc.comm.world import SoloWorld
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Traffic, Vectors
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.train.correction import Correction
from fedhpc.train.local import LocalTraining

FOLDER = HERE / "federated"
SCAFFOLD, DYN = "linear_scaffold_canonical.json", "linear_feddyn_canonical.json"
AVG, MAML, CLIP = "linear_fedavg_repo.json", "mlp_peravg_maml.json", "linear_feddyn_clip.json"
EPOCHS = 2


@dataclass(frozen=True)
class MutantScaffold(Scaffold):
    """SCAFFOLD whose pieces can be replaced by wrong ones."""

    sign: float = 1.0
    use_c: float = 1.0
    control_sign: float = 1.0
    steps: Callable[[LocalTraining], int] | None = None
    undecayed: bool = False
    send_control: bool = False
    divide_by: str = "clients"
    start_from_weights: bool = False
    weighting: str = "uniform"

    @property
    def traffic(self) -> Traffic:
        summed = {"delta": self.weighting, "control_delta": "uniform", "control_mean": "uniform"}
        return replace(super().traffic, summed=summed, client_state=("control", "seen"))

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        x, c, own = server["weights"], server["control"], client["control"]
        if self.start_from_weights and not client["seen"].any():
            own = x
        gradient = local.full_gradient() if self.option == 1 else None
        delta = local.train(Correction(linear=(self.use_c * c - own) * self.sign)) - x
        steps = self.steps(local) if self.steps else local.num_steps
        lr = local.first_lr if self.undecayed else local.lr
        new = own - c - self.control_sign * delta / (steps * lr) if gradient is None else gradient
        sent = new if self.send_control else new - own
        return {"delta": delta, "control_delta": sent, "control_mean": new, "control": new, "seen": x * 0 + 1}

    def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
        super().server_update(state, totals, cohort)
        if self.divide_by == "participants":
            missing = 1 - len(cohort.accepted) / cohort.num_clients
            state["control"].add_(totals["control_delta"], alpha=missing)
        if self.divide_by == "replace":
            state["control"].copy_(totals["control_mean"])


@dataclass(frozen=True)
class MutantDyn(FedDyn):
    """FedDyn whose pieces can be replaced by wrong ones."""

    linear: float = 1.0
    pull: float = 1.0
    use_h: bool = True
    h_over_participants: bool = False
    scaled: bool = False
    weighting: str = "uniform"

    @property
    def traffic(self) -> Traffic:
        return replace(super().traffic, summed={"delta": self.weighting, "moved": "uniform", "drifts": "uniform"})

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        x, drift = server["weights"], client["drift"]
        alpha = self.alpha / local.relative_size if self.scaled else self.alpha
        delta = local.train(Correction(drift * (alpha * self.linear), alpha * self.pull, x)) - x
        return {"delta": delta, "moved": delta, "drifts": drift + delta, "drift": drift + delta}

    def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
        state["mean_drift"].add_(totals["moved"], alpha=len(cohort.accepted) / cohort.num_clients)
        if self.h_over_participants:
            state["mean_drift"].copy_(totals["drifts"])
        state["weights"].add_(totals["delta"])
        if self.use_h:
            state["weights"].add_(state["mean_drift"])


def dyn(**options: Any) -> FederatedAlgorithm:
    return MutantDyn(alpha=0.1, **options)


MUTANTS: dict[tuple[str, str], FederatedAlgorithm | dict[str, Any]] = {
    (SCAFFOLD, "correction sign flipped (g - c + c_i)"): MutantScaffold(sign=-1),
    (SCAFFOLD, "control update sign flipped (y-x instead of x-y)"): MutantScaffold(control_sign=-1),
    (SCAFFOLD, "K = number of epochs"): MutantScaffold(steps=lambda local: EPOCHS),
    (SCAFFOLD, "K = samples x epochs"): MutantScaffold(steps=lambda local: local.num_samples * EPOCHS),
    (SCAFFOLD, "undecayed lr in control update"): MutantScaffold(undecayed=True),
    (SCAFFOLD, "server c divides by |S| instead of N"): MutantScaffold(divide_by="participants"),
    (SCAFFOLD, "client sends c_i instead of delta c_i"): MutantScaffold(send_control=True),
    (SCAFFOLD, "server c = mean of participants' c_i"): MutantScaffold(divide_by="replace"),
    (SCAFFOLD, "c_i initialised to the model weights"): MutantScaffold(start_from_weights=True),
    (SCAFFOLD, "server c missing in local step"): MutantScaffold(use_c=0),
    (SCAFFOLD, "sample-weighted averaging"): MutantScaffold(weighting="samples"),
    (SCAFFOLD, "option I instead of II"): MutantScaffold(option=1),
    (SCAFFOLD, "lr not decayed"): {"lr_decay": 1.0},
    (SCAFFOLD, "weight decay omitted"): {"weight_decay": 0.0},
    (DYN, "linear term sign flipped"): dyn(linear=-1),
    (DYN, "linear term missing (or detached from graph)"): dyn(linear=0),
    (DYN, "alpha/2 with gradient alpha/2 (missing square factor)"): dyn(pull=0.5),
    (DYN, "server h term missing"): dyn(use_h=False),
    (DYN, "server h averaged over |P| instead of N"): dyn(h_over_participants=True),
    (DYN, "alpha scaled by client weight"): dyn(scaled=True),
    (DYN, "sample-weighted averaging"): dyn(weighting="samples"),
    (AVG, "uniform instead of sample weights"): {"weighting": "uniform"},
    (AVG, "lr not decayed"): {"lr_decay": 1.0},
    (MAML, "first-order instead of full"): {"maml_order": "first"},
    (MAML, "one inner step instead of two"): {"inner_steps": 1},
    (CLIP, "alpha*theta inside the clip"): dyn(scaled=True),
    (CLIP, "no clipping"): {"max_norm": None},
}

TABLE = json.loads((FOLDER / "mutation_deviations.json").read_text())


def run(vector: str, mutant: FederatedAlgorithm | dict[str, Any] | None) -> fl_cases.Differences:
    options = {"hyper": mutant} if isinstance(mutant, dict) else {"algorithm": mutant}
    differences = fl_cases.play(SoloWorld(), FOLDER, vector, **options)
    assert differences is not None
    return differences


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['vector'].split('.')[0]}: {row['mutation']}")
def test_bug_moves_the_broadcast_model_as_the_table_says(row: dict[str, Any]) -> None:
    vector, mutation = row["vector"], row["mutation"]
    if mutation != "(none)" and (vector, mutation) not in MUTANTS:
        pytest.fail(f"no mutant for {mutation}")
    differences = run(vector, MUTANTS.get((vector, mutation)))
    assert bool(differences.found) == (mutation != "(none)")
    np.testing.assert_allclose(differences.broadcast, row["max_abs_dev_broadcast_per_round"], atol=1e-8, rtol=1e-6)


def test_unmutated_mutants_are_right() -> None:
    assert run(SCAFFOLD, MutantScaffold()).found == []
    assert run(DYN, dyn()).found == []
