"""Three hosts with their own addresses: mpirun over ssh, slow links, lost hosts, directories that are not shared."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from virtual import CONFIG, SHORT, Cluster, run_words, sha

ENDLESS = [
    "--evaluate.target_accuracy",
    "null",
    "--evaluate.every",
    "100000",
    "--rounds",
    "100000",
    "--checkpoint.every",
    "5",
]
ALL = {"node1": 1, "node2": 1, "node3": 1}
KEEPALIVE = {"PRTE_MCA_plm_ssh_args": "-o ServerAliveInterval=2 -o ServerAliveCountMax=2"}


def test_mpirun_over_three_hosts_gives_the_same_bits(cluster: Cluster, reference: str, out: Path) -> None:
    done = cluster.lab("head", *cluster.mpirun({"node1": 2, "node2": 1, "node3": 1}, run_words(out)), timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sha(out) == reference
    ranks = json.loads((out / "environment.json").read_text())["ranks"]
    assert [r["host"] for r in ranks] == ["node1", "node1", "node2", "node3"]


def test_a_directory_that_other_hosts_do_not_see_is_refused(cluster: Cluster) -> None:
    began = time.monotonic()
    done = cluster.lab("head", *cluster.mpirun(ALL, run_words(Path("/dev/shm/run"))))
    assert done.returncode == 2, done.stdout + done.stderr
    assert re.search(
        r"/dev/shm/run: not seen by node2, node3; put --out on a file system that all nodes share", done.stderr
    )
    assert time.monotonic() - began < 20


def test_settings_that_do_not_reach_other_hosts_are_refused(cluster: Cluster, out: Path) -> None:
    words = cluster.mpirun({"node1": 1, "node2": 1}, run_words(out))
    at = words.index("OMP_NUM_THREADS")
    words[at - 1 : at + 1] = []
    # ssh passes nothing on: the local daemon's rank alone would have the variable
    words[words.index("node1:1,node2:1")] = "head:1,node2:1"
    done = cluster.lab("head", *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "different values of OMP_NUM_THREADS" in done.stderr
    assert "mpirun -x OMP_NUM_THREADS" in done.stderr
    assert not out.exists()


def test_a_lost_host_ends_the_job_and_others_finish_it_with_the_same_bits(
    cluster: Cluster, reference: str, out: Path, tmp_path: Path
) -> None:
    long = [*SHORT, "--rounds", "150", "--evaluate.every", "100000"]
    words = ["run", str(CONFIG), "--out", str(out), *long]
    job = cluster.start("head", cluster.mpirun(ALL, words), tmp_path / "log", KEEPALIVE)
    job.wait_for_round(out, 10)
    cluster.lab("poweroff", "node3")
    began = time.monotonic()
    try:
        code = job.wait(timeout=40)
        seconds = time.monotonic() - began
    finally:
        assert cluster.lab("poweron", "node3").returncode == 0
    assert code != 0, "done is the truth, but this setting also gives an exit code"
    assert seconds < 40
    assert not (out / "done").exists()
    again = cluster.lab("head", *cluster.mpirun({"node1": 2, "node2": 2}, [*words, "--resume"]), timeout=120)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "resuming after round" in again.stdout
    other = tmp_path / "undisturbed"
    alone = cluster.lab(
        "head", *cluster.mpirun({"head": 1}, ["run", str(CONFIG), "--out", str(other), *long]), timeout=120
    )
    assert alone.returncode == 0, alone.stderr
    assert sha(out) == sha(other)


def test_an_unplugged_host_is_named_where_the_launcher_notices_nothing(
    cluster: Cluster, out: Path, tmp_path: Path
) -> None:
    words = ["run", str(CONFIG), "--out", str(out), *ENDLESS, "--hang_seconds", "10"]
    job = cluster.start("head", cluster.mpirun(ALL, words), tmp_path / "log")
    job.wait_for_round(out, 6)
    cluster.lab("unplug", "node2")
    try:
        end = time.monotonic() + 60
        while "fedhpc: error" not in job.text and time.monotonic() < end:
            time.sleep(0.2)
        said = job.text
        logs = "".join(p.read_text() for p in (out / "log").glob("rank-*.log"))
    finally:
        cluster.end(job)
        cluster.lab("plug", "node2")
        for node in cluster.nodes:
            cluster.lab(node, "pkill", "-KILL", "-f", f"fedhpc run .*{out}")
    assert re.search(r"(rank 1 on node2 |all ranks wait for each other)", said + logs), said + logs


def test_a_slow_link_changes_no_bit_and_shows_in_the_records(cluster: Cluster, reference: str, out: Path) -> None:
    wide = ["--model.hidden", "[4000]", "--rounds", "3"]
    fast = out.with_name("fast")
    hosts = {"node1": 1, "node2": 1}
    done = cluster.lab("head", *cluster.mpirun(hosts, run_words(fast, *wide)), timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert cluster.lab("slow", "node2", "100").returncode == 0
    try:
        done = cluster.lab("head", *cluster.mpirun(hosts, run_words(out, *wide)), timeout=120)
    finally:
        cluster.lab("fast", "node2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sha(out) == sha(fast)
    slow, quick = (sum(values_of(r, "communicate_seconds")) for r in (out, fast))
    megabits = sum(values_of(out, "bytes_moved")) * 8 / 1e6
    assert slow > 0.6 * megabits / 100, f"{megabits:.0f} Mbit cannot cross in {slow:.2f} s"
    assert slow > 1.5 * quick


def values_of(run: Path, what: str) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["value"] for line in lines if line["what"] == what]
