"""What crosses the wire between hosts, and what a report says of a slow link."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from virtual import Cluster, run_words, sha

HOSTS = {"node1": 2, "node2": 2}
ROUNDS, RATE = 2, 100_000_000
WIDE = ["--model.hidden", "[4000]", "--rounds", str(ROUNDS)]
PARAMETERS = 64 * 4000 + 4000 + 4000 * 10 + 10


def sent(cluster: Cluster, host: str) -> int:
    """Bytes a host has sent so far."""
    shown = cluster.lab(host, "ip", "-j", "-s", "link", "show", "eth0").stdout
    number = json.loads(shown)[0]["stats64"]["tx"]["bytes"]
    assert isinstance(number, int)
    return number


def reported(cluster: Cluster, run: Path) -> dict[str, Any]:
    shown = cluster.fedhpc("report", str(run), "--json")
    (found,) = json.loads(shown.stdout)["runs"]
    assert isinstance(found, dict)
    return found


def test_sums_by_node_send_less_and_a_slow_link_shows(cluster: Cluster, out: Path) -> None:
    runs = {"flat": out.with_name("flat"), "hierarchical": out}
    moved, found = {}, {}
    for reduce, run in runs.items():
        before = sent(cluster, "node2")
        words = cluster.mpirun(HOSTS, run_words(run, *WIDE, "--aggregation.reduce", reduce))
        if reduce == "hierarchical":
            assert cluster.lab("slow", "node2", str(RATE // 1000)).returncode == 0
        try:
            done = cluster.lab("head", *words, timeout=120)
        finally:
            cluster.lab("fast", "node2")
        assert done.returncode == 0, done.stdout + done.stderr
        moved[reduce], found[reduce] = sent(cluster, "node2") - before, reported(cluster, run)
    assert sha(runs["flat"]) == sha(out)
    assert moved["hierarchical"] < 0.6 * moved["flat"], "without HAN, Open MPI's own tree crosses more often"

    for report in found.values():
        rows = {(row["host"], row["collective"]): row for row in report["collectives"]}
        assert {host for host, _ in rows} == set(HOSTS)
        for host, ranks in HOSTS.items():
            assert rows[host, "reduce"]["calls"] == ROUNDS * ranks
            assert rows[host, "reduce"]["bytes"] >= ROUNDS * ranks * PARAMETERS * 8
    assert found["hierarchical"]["communicate_share"] > found["flat"]["communicate_share"]
    slow = [r for r in found["hierarchical"]["collectives"] if r["collective"] in ("broadcast", "reduce")]
    seconds = 0.5 * ROUNDS * PARAMETERS * 8 * 8 / RATE  # what the link holds in store passes at once
    assert sum(r["seconds"] for r in slow if r["host"] == "node1") > seconds, "root waits for node2's sums"
