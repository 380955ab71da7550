"""torch's optimizers without the loading of torch's compiler."""

from __future__ import annotations

import inspect
from typing import TypeVar

import torch

_Kind = TypeVar("_Kind", bound=torch.optim.Optimizer)


def light(kind: type[_Kind]) -> type[_Kind]:
    """The same optimizer, bit for bit, whose first use does not import `torch._dynamo`.

    torch wraps `step` and `add_param_group` so that `torch.compile` leaves them alone. The wrappers load the compiler,
    which takes each rank more time and files than torch itself, and nothing here is compiled.

    Args:
        kind: such as `torch.optim.SGD`.
    """
    bare = {
        "step": torch.no_grad()(inspect.unwrap(kind.step)),
        "add_param_group": inspect.unwrap(kind.add_param_group),
    }
    return type(kind.__name__, (kind,), bare)
