"""Run directories as the engine leaves them, written with the real writer and the real configuration."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedhpc.config import RunConfig
from fedhpc.runs.records import Record, RecordWriter

CLIENTS = 4


def write_run(
    directory: Path,
    means: Sequence[float | None] = (0.1, 0.5, 0.8, 0.91),
    *,
    algorithm: str = "fedavg",
    target: float | None = 0.9,
    finished: bool = True,
    seconds: float = 2.0,
    planned: int | None = None,
    test_samples: int | None = None,
    **more: Any,
) -> Path:
    """A run with one evaluation a round, the first before training; `None`: no evaluation in that round.

    `more` are sections of its configuration.
    """
    directory.mkdir(parents=True)
    rounds = len(means) - 1
    config = RunConfig.from_dict(
        {
            "rounds": planned or (rounds if finished else rounds + 5),
            "partition": {"kind": "iid", "clients": CLIENTS},
            "algorithm": {"name": algorithm},
            "evaluate": {"target_accuracy": target},
            **more,
        }
    )
    if test_samples is not None:
        counts = [{"client": c, "num_test": test_samples // CLIENTS} for c in range(CLIENTS)]
        (directory / "partition.json").write_text(json.dumps({"clients": counts}))
    (directory / "config.yaml").write_text(config.to_yaml())
    (directory / "environment.json").write_text(json.dumps({"ranks": [{"host": "a"}, {"host": "b"}]}))
    reached = None
    with RecordWriter(directory / "metrics.jsonl") as writer:
        for number, mean in enumerate(means):
            clock = seconds * number
            if number:
                writer.write(Record("round_seconds", seconds, "s", number, clock))
                writer.write(Record("imbalance", 1.5, "ratio", number, clock))
            if mean is None:
                continue
            _evaluation(writer, mean, number, clock)
            if reached is None and target is not None and mean >= target:
                reached = {"round": number, "seconds": clock}
    if finished:
        done = {
            "rounds": rounds,
            "final_client_accuracy": means[-1],
            "seconds_train": seconds * rounds,
            "seconds_evaluate": 0.5 * len(means),
            "time_to_accuracy": reached,
            "weights_sha256": "ab" * 32,
        }
        (directory / "done").write_text(json.dumps(done))
    return directory


def _evaluation(writer: RecordWriter, mean: float, number: int, clock: float) -> None:
    accuracies = [mean + offset for offset in (-0.06, -0.02, 0.02, 0.06)]
    for client, value in enumerate(accuracies):
        writer.write(Record("client_accuracy", value, "fraction", number, clock, client=client, model="broadcast_next"))
    figures = {
        "mean": mean,
        "min": min(accuracies),
        "max": max(accuracies),
        "worst_decile": min(accuracies),
        "std": statistics.pstdev(accuracies),
    }
    for name, value in figures.items():
        writer.write(Record(f"client_accuracy_{name}", value, "fraction", number, clock, model="broadcast_next"))
    writer.write(Record("evaluate_seconds", 0.5, "s", number, clock))
