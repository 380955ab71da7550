"""The number of ranks, the placement and where client state lives never change a bit of the result."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from launcher import REPOSITORY, mpirun

PROGRAMS = Path(__file__).parent / "programs"
CONFIG = str(REPOSITORY / "configs" / "smoke" / "fedavg.yaml")
DOMAINS = str(REPOSITORY / "configs" / "smoke" / "domains.yaml")
DOMAINS_SHORT = ["--rounds=2", "--local.steps=4", "--checkpoint.every=0", "--evaluate.batch_size=100"]
SHORT = ["--rounds=4", "--local.epochs=1", "--cohort.size=7", "--evaluate.every=2", "--checkpoint.every=0"]
ALGORITHMS, METHODS = ("fedavg", "feddyn", "scaffold"), ("none", "maml", "proto")


def cases() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for algorithm, method in product(ALGORITHMS, METHODS):
        options = ["--algorithm.name", algorithm, "--personalize.method", method, "--evaluate.model", "avg_all"]
        found[f"{algorithm}-{method}"] = [CONFIG, [*SHORT, *options]]
    found["fedprox"] = [CONFIG, [*SHORT, "--algorithm.name", "fedprox", "--algorithm.mu", "0.1"]]
    pinned = ["--algorithm.name", "scaffold", "--personalize.method", "none", "--evaluate.model", "avg_all"]
    found["pinned"] = [CONFIG, [*SHORT, *pinned, "--placement", "pinned"]]
    found["served"] = [CONFIG, [*SHORT, *pinned, "--server.hosts_clients", "false"]]
    found["few-clients"] = [CONFIG, [*SHORT, "--partition.clients", "2", "--cohort.size", "1"]]
    found["batch-norm"] = [CONFIG, [*SHORT, "--rounds", "2", "--model.name", "mnist_cnn", "--model.hidden", "[64]"]]
    few = ["--aggregation.chunk", "999", "--aggregation.reduce", "hierarchical"]
    found["chunked"] = [CONFIG, [*SHORT, *pinned, *few]]
    for name, objective in (("domains", "groupdro"), ("domains-dann", "dann"), ("domains-mldg", "mldg")):
        found[name] = [DOMAINS, [*DOMAINS_SHORT, "--local.objective", objective]]
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("bits")
    (folder / "cases.json").write_text(json.dumps(cases()))
    for ranks in (1, 2, 3, 4):
        done = mpirun(ranks, [PROGRAMS / "many_runs.py", folder], timeout=150)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return {name: {n: outcome(folder / f"{name}-{n}") for n in (1, 2, 3, 4)} for name in cases()}


def outcome(run: Path) -> dict[str, Any]:
    """What `done` says, and all that was recorded about environments."""
    found: dict[str, Any] = json.loads((run / "done").read_text())
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    asked = [(r["what"], r["round"], r["environment"], r["value"]) for r in records if "environment" in r]
    return {**found, "environments": asked}


@pytest.mark.parametrize("name", list(cases()))
def test_weights_and_accuracy_are_equal_on_1_to_4_ranks(name: str, results: Any) -> None:
    found = results[name]
    assert len({done["weights_sha256"] for done in found.values()}) == 1
    assert len({done["final_client_accuracy"] for done in found.values()}) == 1
    assert {done["ranks"] for done in found.values()} == {1, 2, 3, 4}


@pytest.mark.parametrize("name", [name for name in cases() if name.startswith("domains")])
def test_accuracy_on_environments_is_equal_on_1_to_4_ranks(name: str, results: Any) -> None:
    found = [done["environments"] for done in results[name].values()]
    assert len(found[0]) == 3 * 5, "three evaluations, of both parts of one environment and one of three others"
    assert all(other == found[0] for other in found[1:])


def test_placement_changes_nothing_and_different_rules_do(results: Any) -> None:
    assert results["pinned"][3]["weights_sha256"] == results["scaffold-none"][2]["weights_sha256"]
    assert results["chunked"][3]["weights_sha256"] == results["scaffold-none"][2]["weights_sha256"]
    assert results["served"][4]["weights_sha256"] == results["scaffold-none"][1]["weights_sha256"]
    distinct = {results[f"{a}-{m}"][1]["weights_sha256"] for a, m in product(ALGORITHMS, METHODS)}
    assert len(distinct) == len(ALGORITHMS) * len(METHODS)
