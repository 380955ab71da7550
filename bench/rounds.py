"""Seconds per federated round against the floor of bare PyTorch processes, in one interleaved run.

    python bench/rounds.py [--json FILE] [--data DIR] [--repeats 4] [--rounds 5] [--clients 100]

Work: images of CIFAR-10's size, 100 clients of 500 images, 10 of them per round, 1 epoch, batch 50, SGD 0.1, the CNN of
the HEM study; 2 ranks of one thread. The floor is two bare processes that run the same local steps on the same
tensors without communication: as plain PyTorch users write it, and tuned (freed memory kept, channels_last) as fedhpc
tunes itself. Bursts of the three alternate; ratios are of medians over all rounds but the first of each burst.
Without --data (a prepared cifar10 folder) the pixels are random: the time does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
COHORT, BATCH, LR, RANKS = 10, 50, 0.1, 2


def make_data(folder: Path, clients: int) -> Path:
    """A dataset of random images of CIFAR-10's size: 500 train and 10 test images per client."""
    from fedhpc.data.prepare import prepare

    rng = np.random.default_rng(0)
    train, test = 500 * clients, 10 * clients
    x = rng.integers(0, 256, (train + test, 32, 32, 3), dtype=np.uint8)
    y = np.arange(train + test) % 10
    np.savez(folder / "raw.npz", x=x, y=y)
    prepare("arrays", folder / "raw.npz", folder / "data")
    return folder / "data"


def floor_process(root: str, rank: int, tuned: bool, rounds: int, barrier: Any, results: Any) -> None:
    """One bare process: its half of each round's clients."""
    import torch

    torch.set_num_threads(1)
    if tuned:
        from fedhpc.comm.process import keep_freed_memory

        keep_freed_memory()
    from floor import Floor

    from fedhpc.data.shards import ShardStore

    store = ShardStore.open(root)
    rows = [np.arange(500 * c, 500 * (c + 1)) for c in range(COHORT // RANKS)]
    rows = [r + rank * 500 * len(rows) for r in rows]
    floor = Floor([store.images(r) for r in rows], [store.table.labels[r] for r in rows], tuned)
    for _ in range(rounds):
        barrier.wait()
        results.put(floor.round(range(len(rows)), BATCH, LR))


def floor_burst(root: Path, tuned: bool, rounds: int) -> list[float]:
    """Seconds per round of the floor: the slower of the two processes counts."""
    context = mp.get_context("spawn")
    barrier, queues = context.Barrier(RANKS), [context.Queue() for _ in range(RANKS)]
    jobs = [
        context.Process(target=floor_process, args=(str(root), rank, tuned, rounds, barrier, queues[rank]))
        for rank in range(RANKS)
    ]
    for job in jobs:
        job.start()
    seconds = [max(queue.get() for queue in queues) for _ in range(rounds)]
    for job in jobs:
        job.join()
    return seconds[1:]


def fedhpc_burst(root: Path, dataset: str, rounds: int, clients: int, options: list[str]) -> list[float]:
    """Seconds per round as `mpirun -n 2 fedhpc run` records them."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        settings = {
            "data.dataset": dataset, "data.root": root, "partition.kind": "iid", "partition.clients": clients,
            "model.name": "hem_cnn", "cohort.size": COHORT, "rounds": rounds, "local.lr": LR,
            "local.batch_size": BATCH, "evaluate.every": 10**6, "device.threads": 1,
        }  # fmt: skip
        words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        config = REPOSITORY / "configs" / "smoke" / "quickstart.yaml"
        command = [str(Path(sys.executable).parent / "mpirun"), "-n", str(RANKS), sys.executable, "-m", "fedhpc", "run"]
        words += ["--evaluate.target_accuracy", "null", *options]
        subprocess.run([*command, str(config), "--out", str(run), *words], check=True, stdout=subprocess.DEVNULL)
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [r["value"] for r in records if r["what"] == "round_seconds"][1:]


def environment() -> None:
    """One thread per process, any user, any number of cores."""
    os.environ.update(
        OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        PRTE_ALLOW_RUN_AS_ROOT="1", PRTE_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )  # fmt: skip
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), str(Path(__file__).parent)])


def main() -> None:
    """Run the bursts and print, and on request write, the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the ratios and the raw figures here")
    parser.add_argument("--data", type=Path, help="a prepared cifar10 folder")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=100)
    args = parser.parse_args()
    environment()
    sys.path[:0] = [str(REPOSITORY), str(Path(__file__).parent)]
    with tempfile.TemporaryDirectory() as folder:
        root = args.data or make_data(Path(folder), args.clients)
        dataset = "cifar10" if args.data else "arrays"
        raw: dict[str, list[float]] = {"floor": [], "floor_tuned": [], "fedhpc": []}
        for _ in range(args.repeats):
            raw["floor"] += floor_burst(root, False, args.rounds + 1)
            raw["fedhpc"] += fedhpc_burst(root, dataset, args.rounds + 1, args.clients, [])
            raw["floor_tuned"] += floor_burst(root, True, args.rounds + 1)
    medians = {name: statistics.median(values) for name, values in raw.items()}
    result = {
        "ratio_to_floor": medians["fedhpc"] / medians["floor"],
        "ratio_to_tuned_floor": medians["fedhpc"] / medians["floor_tuned"],
        "median_seconds": medians,
        "clients": args.clients,
        "raw_seconds": raw,
    }
    for name, value in medians.items():
        print(f"{name:12s} {value:.3f} s/round  {value / medians['floor']:.2f} x floor")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
