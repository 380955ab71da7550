"""Three hosts with their own addresses: mpirun over ssh, lost hosts, disks that only one of them has."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from virtual import CONFIG, LONG, REPOSITORY, SHORT, Cluster, run_words, sha, wait_until

TWO = {"node1": 1, "node2": 1}
ALL = {**TWO, "node3": 1}
KEEPALIVE = {"PRTE_MCA_plm_ssh_args": "-o ServerAliveInterval=2 -o ServerAliveCountMax=2"}
"""As generated scripts set it, but 4 s and not 30 s."""


def test_a_script_for_pbs_starts_ranks_on_all_its_hosts(
    cluster: Cluster, reference: str, out: Path, tmp_path: Path
) -> None:
    """PBS tells a job its hosts in a file and its directory in a variable; mpirun reaches the hosts by ssh."""
    flags = ["--hostfile", "$PBS_NODEFILE", "--bind-to", "none", "--mca", "coll", "^han"]
    site = cluster.site(tmp_path, launcher="mpirun", launcher_flags=flags)
    shape = ["--scheduler", "pbs", "--nodes", "3", "--time", "10m", "--site", str(site), "--dry-run"]
    text = cluster.fedhpc("submit", str(CONFIG), *shape, "--out", str(out), *SHORT)
    assert text.returncode == 0, text.stderr
    script, nodes = tmp_path / "job.pbs", tmp_path / "nodes"
    script.write_text(text.stdout)
    nodes.write_text("".join(f"{node} slots=1\n" for node in cluster.nodes))
    told = {"PBS_JOBID": "1.head", "PBS_NODEFILE": str(nodes), "PBS_O_WORKDIR": str(REPOSITORY)}
    # a batch job knows neither this environment's folder nor this repository: the script must see to both
    bare = ["env", "-u", "PYTHONPATH", "-u", "OMP_NUM_THREADS", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
    variables = [f"{name}={value}" for name, value in told.items()]
    done = cluster.lab("head", *bare, *variables, "bash", str(script), timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sha(out) == reference
    ranks = json.loads((out / "environment.json").read_text())["ranks"]
    assert [r["host"] for r in ranks] == list(cluster.nodes)


def test_a_directory_that_other_hosts_do_not_see_is_refused(cluster: Cluster) -> None:
    began = time.monotonic()
    done = cluster.lab("head", *cluster.mpirun(ALL, run_words(Path("/dev/shm/run"))))
    assert done.returncode == 2, done.stdout + done.stderr
    assert re.search(
        r"/dev/shm/run: not seen by node2, node3; put --out on a file system that all nodes share", done.stderr
    )
    assert time.monotonic() - began < 30


def test_settings_that_do_not_reach_other_hosts_are_refused(cluster: Cluster, out: Path) -> None:
    words = cluster.mpirun({"head": 1, "node2": 1}, run_words(out))
    at = words.index("OMP_NUM_THREADS")
    words[at - 1 : at + 1] = []
    # ssh passes nothing on: the local daemon's rank alone has the variable
    done = cluster.lab("head", *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "different values of OMP_NUM_THREADS" in done.stderr
    assert "mpirun -x OMP_NUM_THREADS" in done.stderr
    assert not out.exists()


def test_lost_hosts_end_the_job_and_others_finish_it_with_the_same_bits(
    cluster: Cluster, undisturbed: str, out: Path, tmp_path: Path
) -> None:
    words = ["run", str(CONFIG), "--out", str(out), *LONG, "--checkpoint.every", "1", "--hang_seconds", "12"]
    cluster.lab("slow", "node2", "500")  # else it may be done before anything is lost
    job = cluster.start("head", cluster.mpirun(ALL, words), tmp_path / "first", KEEPALIVE)
    try:
        job.wait_for_round(out, 5)
        cluster.lab("unplug", "node3")
        assert job.wait(timeout=40) != 0, "done is the truth, but this setting also gives an exit code"
        assert "node3" in job.text, "the launcher names the host that it lost"
        assert not (out / "done").exists()

        rest = cluster.mpirun(TWO, [*words, "--resume"])
        job = cluster.start("head", rest, tmp_path / "second", KEEPALIVE)
        wait_until(lambda: "resuming after" in job.text or job.poll() is not None, 120, lambda: job.text)
        cluster.lab("slow", "node2", "200")
        # nobody could end the rank behind the cut: it gave up by itself, and others went on
        wait_until(lambda: "node3" not in cluster.ranks(out), 60, lambda: cluster.ranks(out))
        log = (out / "log" / "rank-00002.log").read_text()
        assert re.search(r"gives? no sign of life|all ranks wait for each other", log), log

        assert job.poll() is None, job.text
        cluster.lab("poweroff", "node2")
        assert job.wait(timeout=40) != 0, job.text
        assert not (out / "done").exists()
    finally:
        for node in ("node2", "node3"):
            assert cluster.lab("poweron", node).returncode == 0
    again = cluster.lab("head", *cluster.mpirun({"node1": 2, "node3": 1}, [*words, "--resume"]), timeout=120)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "resuming after round" in again.stdout
    assert sha(out) == undisturbed


def test_a_full_disk_and_vanished_data_on_one_host_are_named(cluster: Cluster, out: Path, tmp_path: Path) -> None:
    data, disk = tmp_path / "digits", tmp_path / "disk"
    disk.mkdir()
    assert cluster.fedhpc("prepare", "digits", "--out", str(data)).returncode == 0
    small = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs"]
    assert cluster.lab("node2", *small, str(disk)).returncode == 0
    staged = cluster.lab("head", *cluster.mpirun(TWO, ["stage", str(data), str(disk)]))
    assert staged.returncode == 0, staged.stderr
    assert staged.stdout.splitlines()[-1] == str(data), "read where it is"
    assert re.search(rf"node2: .*{disk} has .* free", staged.stderr), staged.stderr

    # states of clients beyond the budget go to the disk of their rank
    spill = ["--algorithm.name", "scaffold", "--device.client_state_gib", "0", "--cohort.size", "20"]
    words = cluster.mpirun(TWO, run_words(out, *spill), "-x", f"TMPDIR={disk}")
    full = cluster.lab("head", *words)
    assert full.returncode == 1, full.stdout + full.stderr
    assert re.search(r"rank 1 on node2 .*No space left on device", full.stderr), full.stderr

    assert cluster.lab("node2", *small, str(data)).returncode == 0
    other = out.with_name("other")
    gone = cluster.lab("head", *cluster.mpirun(TWO, run_words(other, "--data.root", str(data))))
    for folder in (disk, data):
        assert cluster.lab("node2", "umount", str(folder)).returncode == 0
    assert gone.returncode == 1, gone.stdout + gone.stderr
    assert re.search(rf"node2.*{data}|{data}.*node2", gone.stderr), gone.stderr
