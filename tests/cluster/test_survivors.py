"""A whole host vanishes under `mpirun --with-ft ulfm`: the ranks of the other hosts notice and finish the run."""

from __future__ import annotations

import json
import time
from pathlib import Path

from virtual import CONFIG, Cluster

FLAGS = ["--with-ft", "ulfm", "--mca", "async_mpi_finalize", "1", "--prtemca", "oob_tcp_keepalive_time", "0"]
OPTIONS = "--rounds 60 --evaluate.target_accuracy null --evaluate.every 100000 --checkpoint.every 5"


def test_survivors_of_a_lost_host_finish_the_run(cluster: Cluster, out: Path, tmp_path: Path) -> None:
    words = ["run", str(CONFIG), "--out", str(out), *OPTIONS.split(), "--on_rank_loss", "continue"]
    hosts = {"node1": 1, "node2": 1, "node3": 2}
    job = cluster.start("head", cluster.mpirun(hosts, words, *FLAGS), tmp_path / "log")
    job.wait_for_round(out, 6)
    assert cluster.lab("poweroff", "node3").returncode == 0
    try:
        end = time.monotonic() + 90
        while not (out / "done").exists():
            assert job.poll() is None, job.text
            assert time.monotonic() < end, job.text
            time.sleep(0.2)
    finally:
        cluster.end(job)  # mpirun itself waits for the daemon that is lost
        assert cluster.lab("poweron", "node3").returncode == 0
    done = json.loads((out / "done").read_text())
    assert (done["rounds"], done["ranks"]) == (60, 2)
    assert "lost ranks 2-3; 2 rank(s) redo round" in job.text
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [r["value"] for r in records if r["what"] == "rank_lost"] == [2.0, 3.0]
    for node in ("node1", "node2"):
        assert cluster.lab(node, "pgrep", "-f", f"fedhpc run .*{out}").stdout == "", "survivors end by themselves"
