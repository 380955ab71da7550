"""What medical clients carry from round to round: the optimizer's memory, layers of their own, a head's extra steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedhpc.medical.longtail import head_names
from fedhpc.models.base import Network
from fedhpc.objectives.base import MAIN
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.extension import Carried, ClientExtension
from fedhpc.train.solver import LocalSolver

OUT_OF_REACH = -1e9
"""Added to the scores of classes that a client does not have: their softmax is 0, and finite."""

ENTRIES = {"sgd": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq", "step")}
"""Optimizer -> what it remembers of each parameter."""


class KeptOptimizer(ClientExtension):
    """Each client's optimizer goes on from round to round (momentum: FedMedICL keeps it through averaging and tasks).

    Zeros mean the same to SGD and Adam as no memory, so a client begins with zeros.

    Args:
        vector: the model.
        solver: whose optimizer it is.
        optimizer: `sgd` or `adam`.
        fresh: rounds (rounds done before) in which the memory is dropped.
    """

    def __init__(
        self, vector: ParameterVector, solver: LocalSolver, optimizer: str, fresh: Callable[[int], bool]
    ) -> None:
        self._vector, self._solver, self._entries, self._fresh = vector, solver, ENTRIES[optimizer], fresh
        self._captured: Carried | None = None

    def initial(self) -> Carried:
        """See `ClientExtension`."""
        weights, number = self._vector.weights, len(self._vector.parameters)
        return {f"_{e}": torch.zeros(number if e == "step" else len(weights), dtype=weights.dtype)
                for e in self._entries}  # fmt: skip

    def begin(self, client: int, round: int, carried: Carried) -> None:
        """See `ClientExtension`."""
        self._captured = None
        if self._fresh(round):
            return
        device, state = self._vector.weights.device, {}
        for entry in self._entries:
            flat = carried[f"_{entry}"]
            if entry == "step":  # Adam counts on the host, in float32
                state.update({f"{MAIN}/{i}/{entry}": n.to(torch.float32) for i, n in enumerate(flat)})
                continue
            flat = flat.to(device)
            for index, slot in enumerate(self._vector.layout):
                state[f"{MAIN}/{index}/{entry}"] = flat[slot.start : slot.stop].view(slot.shape)
        self._solver.load_state(state)

    def capture(self) -> None:
        """Carry the memory as it is now, whatever the optimizer does afterwards."""
        self._captured = self._now()

    def end(self) -> Carried:
        """See `ClientExtension`."""
        return self._captured if self._captured is not None else self._now()

    def _now(self) -> Carried:
        state, found = self._solver.state(), {}
        for entry in self._entries:
            values = [state.get(f"{MAIN}/{i}/{entry}") for i in range(len(self._vector.layout))]
            if entry == "step":
                found["_step"] = torch.tensor([0.0 if v is None else float(v) for v in values])
                continue
            flat = torch.zeros_like(self._vector.weights)
            for slot, value in zip(self._vector.layout, values, strict=True):
                if value is not None:
                    flat[slot.start : slot.stop] = value.reshape(-1)
            found[f"_{entry}"] = flat
        return found


class OwnWeights(ClientExtension):
    """Some layers, or all, stay with their clients: local training, and personalised heads.

    Args:
        vector: the model.
        names: parameters that are the clients' own; None: all.
        fresh: rounds (rounds done before) that begin with the broadcast layers: a classifier that was drawn anew.
    """

    moves_start: ClassVar[bool] = True

    def __init__(
        self,
        vector: ParameterVector,
        names: frozenset[str] | None = None,
        fresh: Callable[[int], bool] = lambda round: False,
    ) -> None:
        self._vector, self._fresh = vector, fresh
        self._slots = [slot for slot in vector.layout if names is None or slot.name in names]

    def initial(self) -> Carried:
        """See `ClientExtension`."""
        return {"_own": self._own().to("cpu", copy=True)}

    def begin(self, client: int, round: int, carried: Carried) -> None:
        """See `ClientExtension`."""
        if not self._fresh(round):
            self.place(client, round, carried)

    def end(self) -> Carried:
        """See `ClientExtension`."""
        return {"_own": self._own()}

    def place(self, client: int, round: int, carried: Carried) -> None:
        """See `ClientExtension`."""
        start = 0
        for slot in self._slots:
            size = slot.stop - slot.start
            self._vector.weights[slot.start : slot.stop] = carried["_own"][start : start + size]
            start += size

    def _own(self) -> Tensor:
        return torch.cat([self._vector.weights[slot.start : slot.stop] for slot in self._slots])


class OwnClasses(ClientExtension):
    """A client's classifier has some of the classes only: the others' scores are put out of reach, at no gradient.

    Args:
        model: whose classifier it is.
        known: bool [clients, classes].
    """

    def __init__(self, model: Network, known: np.ndarray) -> None:
        self._masks = torch.from_numpy(np.where(known, 0.0, OUT_OF_REACH))
        self._mask = self._masks[0]
        model.classifier.register_forward_hook(lambda module, inputs, scores: scores + self._mask.to(scores))

    def begin(self, client: int, round: int, carried: Carried) -> None:
        """See `ClientExtension`."""
        self._mask = self._masks[client]

    def place(self, client: int, round: int, carried: Carried) -> None:
        """See `ClientExtension`."""
        self._mask = self._masks[client]


class HeadSteps(ClientExtension):
    """After some steps of a round only the classifier learns, with an optimizer that remembers nothing.

    Args:
        solver: takes the steps.
        backbone: indices of all other parameters.
        after: how many steps of all layers come first.
        kept: the optimizer's memory of these, if clients keep it.
    """

    def __init__(
        self, solver: LocalSolver, backbone: Sequence[int], after: int, kept: KeptOptimizer | None = None
    ) -> None:
        self._solver, self._backbone, self._after, self._kept = solver, backbone, after, kept

    def after_step(self, num_steps: int) -> None:
        """See `ClientExtension`."""
        if num_steps == self._after:
            if self._kept is not None:
                self._kept.capture()
            self._solver.forget()
            self._solver.freeze(self._backbone)

    def end(self) -> Carried:
        """See `ClientExtension`."""
        self._solver.freeze(())
        return {}


def backbone_of(model: Network, vector: ParameterVector) -> list[int]:
    """Indices into the layout of all parameters but the classifier's."""
    head = head_names(model)
    return [index for index, slot in enumerate(vector.layout) if slot.name not in head]
