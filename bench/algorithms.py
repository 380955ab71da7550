"""Seconds per round of every algorithm against FedAvg, in one interleaved run.

    python bench/algorithms.py [--json FILE] [--data DIR] [--repeats 3] [--rounds 4]

Work: images of CIFAR-10's size, 10 of 100 clients per round, 50 local steps of batch 50 (personalised rules see support
and query, twice as many), the CNN of the HEM study, 2 ranks of one thread. Bursts of all rules alternate; ratios are of
medians over all rounds but the first of each burst. Targets: SCAFFOLD and FedDyn 1.10, first-order MAML 2.2, full
MAML with one inner step 4.5, ProtoNet 2.2.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(Path(__file__).parent)]

from rounds import environment, fedhpc_burst, make_data  # noqa: E402

MAML = ["--personalize.method=maml", "--personalize.inner_lr=0.01", "--personalize.inner_steps=1"]
KINDS: dict[str, tuple[list[str], float | None]] = {
    "fedavg": (["--algorithm.name=fedavg"], None),
    "feddyn": (["--algorithm.name=feddyn"], 1.10),
    "scaffold": (["--algorithm.name=scaffold"], 1.10),
    "fedavg first-order maml": ([*MAML, "--personalize.order=first"], 2.2),
    "fedavg full maml": ([*MAML, "--personalize.order=full"], 4.5),
    "fedavg proto": (["--personalize.method=proto"], 2.2),
}


def main() -> None:
    """Run the bursts and print, and on request write, the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", type=Path, help="a prepared cifar10 folder")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    environment()
    raw: dict[str, list[float]] = {name: [] for name in KINDS}
    work = ["--local.epochs=null", f"--local.steps={args.steps}", "--local.lr=0.01"]
    with tempfile.TemporaryDirectory() as folder:
        root = args.data or make_data(Path(folder), 100)
        dataset = "cifar10" if args.data else "arrays"
        for _ in range(args.repeats):
            for name, (options, _target) in KINDS.items():
                raw[name] += fedhpc_burst(root, dataset, args.rounds + 1, 100, [*options, *work])
    medians = {name: statistics.median(values) for name, values in raw.items()}
    ratios = {name: value / medians["fedavg"] for name, value in medians.items()}
    for name, (_options, target) in KINDS.items():
        wanted = "" if target is None else f"  (target {target})"
        print(f"{name:24s} {medians[name]:.3f} s/round  {ratios[name]:.2f} x fedavg{wanted}")
    if args.json:
        args.json.write_text(json.dumps({"ratio_to_fedavg": ratios, "median_seconds": medians, "raw": raw}, indent=1))


if __name__ == "__main__":
    main()
