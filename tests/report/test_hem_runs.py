from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedhpc.config import RunConfig
from fedhpc.errors import DIVERGES_AGAIN, ConfigError, FedhpcError
from fedhpc.report.hem import HemOptions, judge
from fedhpc.report.hem_runs import read_runs
from fedhpc.runs.records import Record, RecordWriter

ROUNDS = ((0.1, 0.1), (0.5, 0.7), (0.8, 0.9), (0.85, 0.95))
"""Accuracy of two clients after 0, 1, 2 and 3 rounds."""


def write(
    directory: Path,
    algorithm: str = "fedavg",
    accuracies: Sequence[Sequence[float | None]] = ROUNDS,
    *,
    seconds: float = 2.0,
    done: bool = True,
    ranks: int = 2,
    **keys: Any,
) -> Path:
    """A run directory as the engine leaves it; `personalize__method="maml"` sets `personalize.method`."""
    directory.mkdir(parents=True)
    tree: dict[str, Any] = {
        "rounds": 3,
        "partition": {"kind": "iid", "clients": 2},
        "algorithm": {"name": algorithm},
        "evaluate": {"target_accuracy": 0.8},
    }
    for key, value in keys.items():
        section, _, name = key.partition("__")
        tree.update({section: {**tree.get(section, {}), name: value}} if name else {section: value})
    config = RunConfig.from_dict(tree)
    (directory / "config.yaml").write_text(config.to_yaml())
    (directory / "environment.json").write_text(json.dumps({"ranks": [{"host": "a"}] * ranks}))
    with RecordWriter(directory / "metrics.jsonl") as writer:
        for number, row in enumerate(accuracies):
            clock = seconds * number
            if number:
                writer.write(Record("round_seconds", seconds, "s", number, clock))
            for client, value in enumerate(row):
                where = {"client": client, "model": config.evaluate.model}
                writer.write(Record("client_accuracy", value, "fraction", number, clock, **where))
            writer.write(Record("evaluate_seconds", 0.5, "s", number, clock))
    if done:
        (directory / "done").write_text(json.dumps({"rounds": len(accuracies) - 1}))
    return directory


def test_a_run_is_read_whole(tmp_path):
    found = read_runs([write(tmp_path / "a")])
    (curve,) = found.curves
    assert (found.target, found.cap, found.warnings) == (0.8, 3, ())
    assert (curve.algorithm, curve.base, curve.seed, curve.finished) == ("FedAvg", None, 0, True)
    assert (curve.rounds, curve.accuracies) == ((0, 1, 2, 3), ROUNDS)
    assert curve.train_seconds == (2.0, 2.0, 2.0)
    assert curve.evaluate_seconds == (0.5, 0.5, 0.5)


def test_a_study_directory_is_compared_in_the_papers_order(tmp_path):
    for algorithm in ("scaffold", "feddyn", "fedprox", "fedavg"):
        for method in ("proto", "none", "maml"):
            write(tmp_path / algorithm / method, algorithm, personalize__method=method)
    comparison = read_runs([tmp_path])
    names = [curve.algorithm for curve in comparison.curves]
    assert names == [
        plain + method for plain in ("FedAvg", "FedDyn", "SCAFFOLD", "FedProx") for method in ("", "_MAML", "_Proto")
    ]
    assert {c.algorithm: c.base for c in comparison.curves}["SCAFFOLD_Proto"] == "SCAFFOLD"
    report = judge(comparison)
    assert list(report.hem["iot"]) == names
    assert report.personalization["FedDyn_MAML"].percent == 0.0


def test_clocks_and_times(tmp_path):
    runs = [write(tmp_path / "a"), write(tmp_path / "b", "feddyn", seconds=3.0)]
    assert judge(read_runs(runs)).figures["FedAvg"].tta == {"train": 4.0, "all": 5.0}
    assert judge(read_runs(runs)).components["FedAvg"]["computation"] == pytest.approx(1 - 4 / 6)
    found = judge(read_runs(runs), HemOptions(clock="all"))
    assert found.components["FedAvg"]["computation"] == pytest.approx(1 - 5 / 7)


def test_seeds_of_one_algorithm_belong_together(tmp_path):
    for seed in (0, 1, 2):
        write(tmp_path / f"a{seed}", seed=seed, seconds=1.0 + seed)
        write(tmp_path / f"b{seed}", "scaffold", seed=seed, seconds=2.0 + seed)
    found = judge(read_runs([tmp_path]))
    assert found.algorithms == ("FedAvg", "SCAFFOLD")
    assert found.seeds == (0, 1, 2)
    assert found.times["SCAFFOLD"].total == 3


def test_variants_of_one_algorithm_are_told_apart(tmp_path):
    for alpha in (0.1, 0.01):
        write(tmp_path / f"{alpha}", "feddyn", algorithm__alpha=alpha)
        write(tmp_path / f"p{alpha}", "feddyn", algorithm__alpha=alpha, personalize__method="proto")
    found = {curve.algorithm: curve.base for curve in read_runs([tmp_path]).curves}
    assert found == {
        "FedDyn (alpha=0.01)": None,
        "FedDyn (alpha=0.1)": None,
        "FedDyn_Proto (alpha=0.01)": "FedDyn (alpha=0.01)",
        "FedDyn_Proto (alpha=0.1)": "FedDyn (alpha=0.1)",
    }


def test_how_a_run_is_watched_over_makes_no_other_algorithm_of_it(tmp_path):
    for seed, keys in enumerate(({}, {"hang_seconds": 60.0, "warmup_rounds": 2, "on_rank_loss": "continue"})):
        write(tmp_path / f"a{seed}", seed=seed, **keys)
    assert {curve.algorithm for curve in read_runs([tmp_path]).curves} == {"FedAvg"}


def test_two_runs_that_are_the_same_are_refused(tmp_path):
    runs = [write(tmp_path / name) for name in "ab"]
    with pytest.raises(ConfigError, match="FedAvg: there are two runs with seed 0"):
        judge(read_runs(runs))


def test_a_client_that_is_missing_in_one_run_only_is_missing_there(tmp_path):
    write(tmp_path / "a", accuracies=[(0.1, 0.2, 0.3), (0.8, 0.8, 0.9)])
    write(tmp_path / "b", "feddyn", accuracies=[(0.1, 0.2), (0.8, 0.8)])
    write(tmp_path / "c", "scaffold", accuracies=[(0.1, 0.2, 0.3), (0.8, 0.8, 0.9)])
    found = judge(read_runs([tmp_path]))
    assert found.flags["FedDyn"][0] == "nan_accuracy"
    assert found.components["FedDyn"]["accuracy"] is None
    assert found.components["FedAvg"]["fairness"] == 1.0


def test_an_accuracy_that_could_not_be_measured_is_missing(tmp_path):
    write(tmp_path / "a", accuracies=[(0.1, 0.1), (0.9, None)])
    write(tmp_path / "b", "feddyn")
    assert judge(read_runs([tmp_path])).flags["FedAvg"][0] == "nan_accuracy"


def test_target_and_cap_must_agree_or_be_given(tmp_path):
    runs = [write(tmp_path / "a"), write(tmp_path / "b", "feddyn", evaluate__target_accuracy=0.7, rounds=5)]
    with pytest.raises(ConfigError, match=r"evaluate.target_accuracy differs: 0.8 in .*a, 0.7 in .*b; .*--target"):
        read_runs(runs)
    with pytest.raises(ConfigError, match=r"rounds differs: 3 in .*a, 5 in .*b; .*--rounds"):
        read_runs(runs, target=0.75)
    found = read_runs(runs, target=0.75, cap=10)
    assert (found.target, found.cap) == (0.75, 10)
    with pytest.raises(ConfigError, match="target_accuracy is not set; set it with --target"):
        read_runs([write(tmp_path / "c", evaluate__target_accuracy=None)])


def test_runs_of_other_data_are_refused(tmp_path):
    runs = [write(tmp_path / "a"), write(tmp_path / "b", "feddyn", partition__clients=3)]
    with pytest.raises(ConfigError, match="partition differs"):
        read_runs(runs)


def test_what_makes_runs_hard_to_compare_is_said(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b", "feddyn", ranks=4, evaluate__model="avg_all", done=False)
    warnings = "\n".join(read_runs([tmp_path]).warnings)
    assert 'evaluate.model differs, compare with care ("broadcast_next": FedAvg; "avg_all": FedDyn)' in warnings
    assert "the number of ranks differs, compare with care (2: FedAvg; 4: FedDyn)" in warnings
    assert "threads per rank" not in warnings, "of a file that does not say"
    goes_on = f"go on with: fedhpc run {tmp_path / 'b' / 'config.yaml'} --out {tmp_path / 'b'} --resume"
    assert f"{tmp_path / 'b'}: its figures are of its last round so far; it is not finished; " in warnings
    assert goes_on in warnings
    assert "unfinished" in judge(read_runs([tmp_path])).flags["FedDyn"]


def test_other_data_threads_and_devices_and_skipped_updates_are_said(tmp_path):
    for name, digest, threads in (("fedavg", "d" * 64, 1), ("scaffold", "e" * 64, 8)):
        run = write(tmp_path / name, name)
        (run / "partition.json").write_text(json.dumps({"data": digest}))
        ranks = [{"threads": threads, "label": "CPU"}] * 2
        (run / "environment.json").write_text(json.dumps({"ranks": ranks}))
    with RecordWriter(tmp_path / "scaffold" / "metrics.jsonl") as writer:
        writer.write(Record("diverged", 1, "clients", 3, 6.0, client=1))
    assert read_runs([tmp_path]).warnings == (
        'the content of data.root differs, compare with care ("dddddddd": FedAvg; "eeeeeeee": SCAFFOLD)',
        'threads per rank differs, compare with care ("1": FedAvg; "8": SCAFFOLD)',
        f"{tmp_path / 'scaffold'}: 1 client updates were skipped because they diverged",
    )


def test_gpus_of_one_kind_are_one_device_and_other_kinds_are_said(tmp_path):
    for name, gpu in (("fedavg", "NVIDIA H200 GPU-1"), ("scaffold", "NVIDIA H200 GPU-2"), ("feddyn", "NVIDIA A100 0")):
        ranks = [{"threads": 1, "label": gpu}, {"threads": 1, "label": f"{gpu}5"}]
        (write(tmp_path / name, name) / "environment.json").write_text(json.dumps({"ranks": ranks}))
    assert read_runs([tmp_path / "fedavg", tmp_path / "scaffold"]).warnings == ()
    (said,) = read_runs([tmp_path]).warnings
    assert said.startswith(
        'the device differs, compare with care ("NVIDIA H200": FedAvg, SCAFFOLD; "NVIDIA A100": FedDyn'
    )


def test_a_run_that_diverged_takes_no_part_in_the_comparison(tmp_path):
    for name in ("fedavg", "scaffold"):
        write(tmp_path / name, name)
    without = judge(read_runs([tmp_path]))
    bad = write(tmp_path / "feddyn", "feddyn", ROUNDS[:2], done=False)
    (bad / "failed").write_text(f"all clients diverged in round 2; {DIVERGES_AGAIN}\n")
    found = judge(read_runs([tmp_path]))
    assert found.flags["FedDyn"] == ("diverged", "target_not_reached", "censored")
    assert found.hem["iot"] == {**without.hem["iot"], "FedDyn": None}
    assert found.components["FedDyn"]["accuracy"] is None
    assert f"{bad}: failed: all clients diverged in round 2; {DIVERGES_AGAIN}" in found.warnings


def test_a_study_without_runs_and_a_path_without_a_directory_are_named(tmp_path):
    with pytest.raises(ConfigError, match="holds no run"):
        read_runs([tmp_path])
    with pytest.raises(ConfigError, match="no such directory"):
        read_runs([tmp_path / "absent"])


def damage(run: Path, old: str, new: str) -> None:
    metrics = run / "metrics.jsonl"
    text = metrics.read_text()
    assert old in text
    metrics.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"value":0.95', '"value":95', r"accuracy of client 1 in round 3 must be a fraction in \[0, 1\], got 95"),
        (
            '{"what":"round_seconds","value":2.0,"unit":"s","round":2,"seconds":4.0}\n',
            "",
            "no round_seconds of round 2",
        ),
        ('"what":"client_accuracy"', '"what":"other"', "has no client accuracies yet"),
        ('{"what":"round_seconds","value":2.0,"unit":"s","round":2', '{"what', "line"),
    ],
)
def test_damaged_records_are_named(tmp_path, old, new, message):
    run = write(tmp_path / "a")
    damage(run, old, new)
    with pytest.raises(FedhpcError, match=rf"a/metrics\.jsonl.*{message}"):
        read_runs([run])


def test_missing_and_damaged_files_are_named(tmp_path):
    run = write(tmp_path / "a")
    (run / "done").write_text("{")
    with pytest.raises(FedhpcError, match=r"a/done: cannot be read: not JSON"):
        read_runs([run])
    (run / "done").unlink()
    (run / "config.yaml").unlink()
    with pytest.raises(ConfigError, match=r"a/config\.yaml: no such configuration file"):
        read_runs([run])
    (run / "metrics.jsonl").unlink()
    write(tmp_path / "b")
    (tmp_path / "b" / "metrics.jsonl").unlink()
    with pytest.raises(FedhpcError, match=r"b/metrics\.jsonl: cannot be read"):
        read_runs([tmp_path / "b"])
