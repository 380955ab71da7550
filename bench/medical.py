"""How much of a medical round is forward, backward and step; and what the final evaluation and the sampling read.

    python bench/medical.py [--model squeezenet1_1] [--size 224] [--rounds 4] [--recipe cb] [--json FILE]

Work: 10 clients, each 5 steps of batch 10 per round (FedMedICL's numbers), on one rank of one thread, random pixels in
a prepared dataset of 800 images with made-up patients. Printed: the share of the round's seconds that lies in the
objective's forward and backward pass and in the solver's step (bound: 0.90), how many images pass through the model
in the exam that ends a task (bound: each once), and how many images are read for sampling (bound: none).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

import numpy as np  # noqa: E402

CLIENTS, STEPS, BATCH = 10, 5, 10


def make_data(folder: Path, size: int, num: int = 800) -> Path:
    """Random images of made-up patients in two age groups, seven unequal classes."""
    from PIL import Image

    rng = np.random.default_rng(0)
    (folder / "raw").mkdir()
    lines = ["path,label,unit,age,sex"]
    for i in range(num):
        Image.fromarray(rng.integers(0, 256, (size, size, 3), dtype=np.uint8)).save(folder / "raw" / f"{i}.png")
        label = int(np.searchsorted([0.5, 0.7, 0.82, 0.9, 0.95, 0.98], rng.random()))
        lines.append(f"{i}.png,c{label},p{i // 2},{int(rng.integers(20, 95))},{'MF'[i % 2]}")
    (folder / "raw" / "table.csv").write_text("\n".join(lines))
    keys = "root: raw\ntable: table.csv\npath: path\nlabel: label\nunit: unit\nage: age\nsex: sex\n"
    (folder / "table.yaml").write_text(keys)
    from fedhpc.data.prepare import prepare

    prepare("medical_table", folder / "table.yaml", folder / "data")
    return folder / "data"


class Meter:
    """Adds up the seconds of a function's calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, measured."""

        def measured(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                self.seconds += time.perf_counter() - began

        return measured


class Sink:
    """Takes records and keeps the seconds of the rounds."""

    def __init__(self) -> None:
        self.rounds: list[float] = []

    def record(self, what: str, value: float, *_: Any, **__: Any) -> None:
        """See `fedhpc.federated.records.Sink`."""
        if what == "round_seconds":
            self.rounds.append(value)

    def round_done(self, *_: Any) -> None:
        """See `fedhpc.federated.records.Sink`."""

    def evaluated(self, *_: Any) -> None:
        """See `fedhpc.federated.records.Sink`."""


def measure(root: Path, model: str, recipe: str, rounds: int) -> dict[str, float]:
    """Run one task and look."""
    import torch

    from fedhpc.comm.process import keep_freed_memory
    from fedhpc.comm.world import SoloWorld
    from fedhpc.commands import _federation as build
    from fedhpc.commands import _medical
    from fedhpc.medical.config import load_medical
    from fedhpc.timing import Stopwatch

    keep_freed_memory()
    torch.set_num_threads(1)
    words = {
        "data.dataset": "medical_table", "data.root": root, "model.name": model, "recipe.name": recipe,
        "rounds": rounds, "scenario.clients": CLIENTS, "scenario.tasks": 1, "local.steps": STEPS,
        "local.batch_size": BATCH, "local.lr": 1e-4, "model.hidden": "[64]",
    }  # fmt: skip
    options = [word for key, value in words.items() for word in (f"--{key}", str(value))]
    config = load_medical(str(REPOSITORY / "configs" / "smoke" / "medical" / "cb.yaml"), options)
    world, sink, clock = SoloWorld(), Sink(), Stopwatch()
    data = _medical.open_data(world, config)
    network, _ = build.build_model(world, config, data.store, "cpu")
    run = _medical.build_run(world, config, data, network, "cpu")
    read = {"sampling": 0, "exam": 0}
    images = data.store.images

    def counted(rows: np.ndarray) -> np.ndarray:
        read[phase] += len(rows)
        return images(rows)

    data.store.images = counted  # type: ignore[method-assign]
    phase = "sampling"
    for client in range(CLIENTS):  # all of a task's batches, drawn and not used
        for round in range(rounds):
            list(run.trainer.batches.batches(client, round, len(data.timeline.train[client][0])))
    steps = Meter()
    run.trainer.solver.step = steps.around(run.trainer.solver.step)  # type: ignore[method-assign]
    engine = run.engine(run.stages[0], sink, clock, None, lambda: False)  # type: ignore[arg-type]
    run.begin(run.stages[0], engine)
    phase = "exam"
    engine.warm_up(1)
    steps.seconds = 0.0
    exam, test = run._exam(run._task(0)), sum(len(rows) for client in data.timeline.test for rows in client)
    read["exam"] = 0
    began = time.perf_counter()
    exam.evaluate(run.trainer, 0, 1)
    seconds = time.perf_counter() - began
    asked = np.unique(np.concatenate([*(r for c in data.timeline.test for r in c), data.timeline.holdout]))
    found = {
        "exam_images_per_distinct_image": read["exam"] / len(asked),
        "exam_images_if_once_per_client": (test + CLIENTS * len(data.timeline.holdout)) / len(asked),
        "exam_seconds": seconds,
        "images_read_for_sampling": read["sampling"],
    }
    engine.run()
    total = sum(sink.rounds)
    return {"share": steps.seconds / total, "seconds_per_round": total / rounds, **found}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="squeezenet1_1")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--recipe", default="cb")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(make_data(Path(folder), args.size), args.model, args.recipe, args.rounds)
    print(f"{args.model}, {args.size}x{args.size}, recipe {args.recipe}")
    for name, value in found.items():
        print(f"  {name:34s} {value:.4g}")
    if args.json:
        args.json.write_text(json.dumps({**vars(args), "json": None, **found}, indent=1, default=str))


if __name__ == "__main__":
    main()
