"""A whole host vanishes under `mpirun --with-ft ulfm`: the ranks of the other hosts notice and finish the run."""

from __future__ import annotations

import json
from pathlib import Path

from virtual import CONFIG, Cluster, rounds_done, wait_until

FLAGS = ["--with-ft", "ulfm", "--mca", "async_mpi_finalize", "1", "--prtemca", "oob_tcp_keepalive_time", "0"]
OPTIONS = "--rounds 60 --evaluate.target_accuracy null --evaluate.every 100000 --checkpoint.every 5"


def test_survivors_of_a_lost_host_finish_the_run(cluster: Cluster, out: Path, tmp_path: Path) -> None:
    """One job over ssh, and one that Slurm started, which must keep the allocation when it misses the host."""
    words = ["run", str(CONFIG), "--out", str(out), *OPTIONS.split(), "--on_rank_loss", "continue"]
    hosts = {"node1": 1, "node2": 1, "node3": 2}
    job = cluster.start("head", cluster.mpirun(hosts, words, *FLAGS), tmp_path / "log")
    scheduled = out.with_name("scheduled")
    number = submit_long(cluster, scheduled, tmp_path)
    job.wait_for_round(out, 6)
    wait_until(lambda: rounds_done(scheduled) >= 3, 120, lambda: cluster.log(scheduled, number))
    assert cluster.lab("poweroff", "node3").returncode == 0
    try:
        wait_until((out / "done").exists, 90, lambda: job.text)
        assert job.poll() is None, "mpirun itself waits for the daemon that is lost"
        goes_on_without_the_host(cluster, scheduled, number)
    finally:
        cluster.end(job)
        cluster.lab("head", "scancel", number)
        assert cluster.lab("poweron", "node3").returncode == 0
    done = json.loads((out / "done").read_text())
    assert (done["rounds"], done["ranks"]) == (60, 2)
    assert "lost ranks 2-3; 2 rank(s) redo round" in job.text
    assert "should mpirun wait for a host that is gone, it may be killed" in job.text
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [r["value"] for r in records if r["what"] == "rank_lost"] == [2.0, 3.0]
    for node in ("node1", "node2"):
        assert cluster.lab(node, "pgrep", "-f", f"fedhpc run .*{out}").stdout == "", "survivors end by themselves"
    wait_until(lambda: cluster.ranks(scheduled) == {}, 30, lambda: cluster.ranks(scheduled))


def submit_long(cluster: Cluster, out: Path, folder: Path) -> str:
    """A run on all nodes that does not come to its end; returns the job's number."""
    site = cluster.site(folder, launcher_flags=["--bind-to", "none", "--mca", "coll", "^han"], launcher="mpirun")
    shape = ["--scheduler", "slurm", "--time", "10m", "--nodes", "3", "--site", site, "--out", out]
    return cluster.submit(CONFIG, *shape, *OPTIONS.split(), "--rounds", "100000", "--on_rank_loss", "continue")


def goes_on_without_the_host(cluster: Cluster, out: Path, job: str) -> None:
    """Rounds are done after Slurm has declared the node down."""

    def state() -> str:
        return cluster.lab("head", "sinfo", "-h", "-N", "-n", "node3", "-o", "%T").stdout

    wait_until(lambda: state().startswith("down"), 90, state)
    before = rounds_done(out)
    wait_until(lambda: rounds_done(out) >= before + 3, 60, lambda: cluster.log(out, job))
    assert cluster.job(job)["JobState"] == "RUNNING"
    assert "lost rank 2; 2 rank(s) redo round" in cluster.log(out, job)
