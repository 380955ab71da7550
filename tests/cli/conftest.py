"""A small run to try the command line on, and a process that is put back after each test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

CONFIG = """\
rounds: 40
data: {{dataset: digits, root: {root}}}
partition: {{kind: iid, clients: 5}}
algorithm: {{name: scaffold}}
model: {{name: mlp, hidden: [8]}}
local: {{lr: 0.2, steps: 3, batch_size: 20}}
cohort: {{size: 3}}
evaluate: {{every: 4, model: avg_all}}
checkpoint: {{every: 10}}
device: {{threads: 1}}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fedhpc.data.prepare import prepare

    folder = tmp_path_factory.mktemp("digits")
    prepare("digits", None, folder / "digits")
    path = folder / "small.yaml"
    path.write_text(CONFIG.format(root=folder / "digits"))
    return path


@pytest.fixture(autouse=True)
def process_put_back() -> Iterator[None]:
    """A run changes its process (handlers, kernels, variables): the tests after this one want it as it was."""
    import torch

    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)
    handlers = {number: signal.getsignal(number) for number in numbers}
    variables, threads = dict(os.environ), torch.get_num_threads()
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    torch.set_deterministic_debug_mode("default")
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_num_threads(threads)
    os.environ.clear()
    os.environ.update(variables)
