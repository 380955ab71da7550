"""A real Slurm with three nodes: generated scripts, launchers, arrays, requeueing, cancelling, time limits."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest
from virtual import CONFIG, REPOSITORY, SHORT, Cluster, environment, rounds_done, run_words, sha

LONG = ["--evaluate.target_accuracy", "null", "--evaluate.every", "100000", "--checkpoint.every", "5"]


def test_the_cluster_comes_up_quickly(cluster: Cluster) -> None:
    assert cluster.seconds < 60
    done = cluster.lab("head", "sinfo", "-h", "-N", "-o", "%n %T")
    assert sorted(set(done.stdout.split("\n")) - {""}) == [f"{node} idle" for node in cluster.nodes]


def test_srun_on_two_nodes_gives_the_same_bits_as_one_process(cluster: Cluster, reference: str, out: Path) -> None:
    words = [sys.executable, "-m", "fedhpc", *run_words(out)]
    shape = ["-N", "2", "-n", "4", "--ntasks-per-node=2", "--mpi=pmix", "--kill-on-bad-exit=1"]
    done = cluster.lab("head", "srun", *shape, *words, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sha(out) == reference
    ranks = json.loads((out / "environment.json").read_text())["ranks"]
    assert [(r["host"], r["local_rank"]) for r in ranks] == [("node1", 0), ("node1", 1), ("node2", 0), ("node2", 1)]


def test_srun_without_pmix_would_give_singletons_and_is_refused_in_time(cluster: Cluster, out: Path) -> None:
    began = time.monotonic()
    done = cluster.lab("head", "srun", "-n", "2", sys.executable, "-m", "fedhpc", *run_words(out))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "srun started 2 tasks but MPI sees 1 rank" in done.stderr
    assert "srun --mpi=pmix" in done.stderr
    assert time.monotonic() - began < 10
    assert not out.exists()


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_a_submitted_run_ends_with_the_same_bits(
    launcher: str, cluster: Cluster, reference: str, out: Path, tmp_path: Path
) -> None:
    flags = "[--bind-to, none, --mca, coll, ^han]" if launcher == "mpirun" else "[]"
    site = cluster.site(tmp_path, launcher, flags)
    shape = ["--nodes", "2", "--ranks-per-node", "2", "--time", "10m"]
    job = cluster.submit(CONFIG, "--scheduler", "slurm", *shape, "--site", site, "--out", out, *SHORT)
    info = cluster.wait_for(job, "COMPLETED", "FAILED", seconds=120)
    log = (out / "log" / f"job-{job}.out").read_text()
    assert info["JobState"] == "COMPLETED", log
    assert sha(out) == reference
    assert json.loads((out / "done").read_text())["ranks"] == 4


def test_slurm_accepts_the_script_before_anything_is_queued(cluster: Cluster, out: Path, tmp_path: Path) -> None:
    words = [
        "submit",
        str(CONFIG),
        "--scheduler",
        "slurm",
        "--nodes",
        "3",
        "--ranks-per-node",
        "2",
        "--gpus-per-node",
        "2",
    ]
    more = ["--cpus-per-rank", "2", "--time", "30m", "--out", str(out), "--dry-run"]
    text = cluster.lab("head", sys.executable, "-m", "fedhpc", *words, *more)
    assert text.returncode == 0, text.stderr
    script = tmp_path / "job.sh"
    script.write_text(text.stdout)
    done = cluster.lab("head", "sbatch", "--test-only", str(script))
    assert done.returncode == 0, done.stderr
    assert re.search(r"to start at .* using 12 processors on nodes node\[1-3\]", done.stderr), done.stderr
    for file in ("run.sbatch", "sweep.sbatch"):
        plain = cluster.lab(
            "head", "sbatch", "--test-only", "--cpus-per-task=1", str(REPOSITORY / "launch/slurm" / file), "x"
        )
        assert plain.returncode == 0, plain.stderr


def test_two_jobs_of_an_array_share_one_sweep(cluster: Cluster, out: Path, tmp_path: Path) -> None:
    config = REPOSITORY / "configs" / "smoke" / "sweep.yaml"
    few = ["--sweep.datasets", "{rotated_digits: null}", "--sweep.n_hparams", "1", "--sweep.n_trials", "1"]
    few += ["--sweep.algorithms", "[erm, irm]"]
    shape = ["--mode", "sweep", "--array", "2", "--time", "10m", "--site", cluster.site(tmp_path)]
    job = cluster.submit(config, "--scheduler", "slurm", *shape, "--out", out, *few)
    cluster.wait_for(job, "COMPLETED", "FAILED", seconds=180)
    logs = "\n".join(p.read_text() for p in sorted((out / "log").glob("job-*.out")))
    status = cluster.lab(
        "head", sys.executable, "-m", "fedhpc", "sweep", str(config), *few, "--out", str(out), "--status", "--json"
    )
    assert status.returncode == 0, status.stderr + logs
    tree = json.loads(status.stdout)
    assert (tree["missing"], tree["failed"], tree["running"]) == (0, 0, 0), logs
    assert tree["done"] > 0


def test_a_requeued_job_goes_on_to_the_same_bits(cluster: Cluster, out: Path, tmp_path: Path) -> None:
    site = cluster.site(tmp_path)
    words = ["--rounds", "120", *LONG]
    job = cluster.submit(
        CONFIG, "--scheduler", "slurm", "--nodes", "2", "--time", "10m", "--site", site, "--out", out, *words
    )
    end = time.monotonic() + 90
    while rounds_done(out) < 12:
        assert time.monotonic() < end, (out / "log" / f"job-{job}.out").read_text()
        time.sleep(0.1)
    assert cluster.lab("head", "scontrol", "requeue", job).returncode == 0
    info = cluster.wait_for(job, "COMPLETED", "FAILED", seconds=180)
    log = (out / "log" / f"job-{job}.out").read_text()
    assert info["Restarts"] == "1", info
    assert info["JobState"] == "COMPLETED", log
    assert "resuming after round" in log
    assert log.count("job ") >= 2, "the log of the first start is kept"
    other = tmp_path / "undisturbed"
    done = cluster.lab(
        "head", sys.executable, "-m", "fedhpc", "run", str(CONFIG), "--out", str(other), *words, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert sha(out) == sha(other)


def test_a_cancelled_job_leaves_nothing_running_and_can_be_resumed(cluster: Cluster, out: Path, tmp_path: Path) -> None:
    site = cluster.site(tmp_path)
    words = ["--rounds", "100000", *LONG]
    job = cluster.submit(
        CONFIG, "--scheduler", "slurm", "--nodes", "3", "--time", "10m", "--site", site, "--out", out, *words
    )
    end = time.monotonic() + 90
    while rounds_done(out) < 6:
        assert time.monotonic() < end, (out / "log" / f"job-{job}.out").read_text()
        time.sleep(0.1)
    cluster.lab("head", "scancel", job)
    assert cluster.wait_for(job, "CANCELLED", seconds=30)["Restarts"] == "0"
    end = time.monotonic() + 30
    while cluster.lab("head", "squeue", "-h").stdout.strip():
        assert time.monotonic() < end
        time.sleep(0.3)
    for node in cluster.nodes:
        assert cluster.lab(node, "pgrep", "-f", "fedhpc run").stdout == ""
    assert list((out / "checkpoints").glob("round-*"))
    assert not (out / "done").exists()


@pytest.mark.timeout(700)
def test_a_time_limit_is_kept_by_the_run_itself_and_the_job_requeued(
    cluster: Cluster, out: Path, tmp_path: Path
) -> None:
    """No signal is asked for: the run knows from Slurm when its minute is over."""
    began, rate = time.monotonic(), tmp_path / "rate"
    words = ["--rounds", "40", *LONG]
    shape = ["-N", "2", "-n", "2", "--mpi=pmix"]
    done = cluster.lab(
        "head",
        "srun",
        *shape,
        sys.executable,
        "-m",
        "fedhpc",
        "run",
        str(CONFIG),
        "--out",
        str(rate),
        *words,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seconds = json.loads((rate / "done").read_text())["seconds_train"]
    rounds = str(int(52 / seconds * 40) + 1)  # more than fits in a minute
    words = ["--rounds", rounds, *LONG[:-1], "100000"]  # no checkpoint but the one at the end
    site = cluster.site(tmp_path)
    job = cluster.submit(
        CONFIG, "--scheduler", "slurm", "--nodes", "2", "--time", "1m", "--site", site, "--out", out, *words
    )
    info = cluster.wait_for(job, "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", seconds=450)
    log = (out / "log" / f"job-{job}.out").read_text()
    assert info["JobState"] == "COMPLETED", log
    assert int(info["Restarts"]) >= 1, f"all {rounds} rounds fitted: {log}"
    assert "the job's time is running out" in log
    other = tmp_path / "undisturbed"
    done = cluster.lab(
        "head", sys.executable, "-m", "fedhpc", "run", str(CONFIG), "--out", str(other), *words, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert sha(out) == sha(other)
    print(f"{rounds} rounds, {info['Restarts']} restarts, {time.monotonic() - began:.0f} s")


def test_gpus_that_slurm_gives_are_shown_per_rank(cluster: Cluster, out: Path) -> None:
    words = [sys.executable, "-m", "fedhpc", "doctor", "--json", "--megabytes", "0.1", "--out", str(out.parent)]
    shape = ["-N", "2", "--ntasks-per-node=2", "--gpus-per-task=1", "--mpi=pmix"]
    done = cluster.lab("head", "srun", *shape, *words, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    tree = json.loads(done.stdout)
    assert [r["given"] for r in tree["ranks"]] == ["0", "1", "0", "1"]
    assert any("torch sees none" in v["text"] for v in tree["verdicts"])


def test_plain_sbatch_works_with_a_configuration(cluster: Cluster, reference: str, out: Path) -> None:
    file = REPOSITORY / "launch" / "slurm" / "run.sbatch"
    venv = REPOSITORY / ".venv" / "bin" / "activate"
    if not venv.exists():
        pytest.skip("the plain file sources .venv")
    small = ["--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=1", f"--output={out.parent}/log"]
    done = cluster.lab("head", "env", f"OUT={out}", "sbatch", *small, str(file), str(CONFIG), *SHORT)
    job = re.findall(r"\d+", done.stdout)[-1]
    info = cluster.wait_for(job, "COMPLETED", "FAILED", seconds=120)
    log = (out.parent / "log").read_text()
    assert info["JobState"] == "COMPLETED", log
    assert sha(out) == reference


def test_the_environment_of_the_tests_has_no_outer_job() -> None:
    assert not [name for name in environment() if name.startswith(("SLURM_", "OMPI_"))]
