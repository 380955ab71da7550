"""A real Slurm with three nodes: generated scripts, launchers, arrays, requeueing, lost nodes, time limits."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from virtual import CONFIG, LONG, REPOSITORY, SHORT, Cluster, environment, rounds_done, run_words, sha, wait_until

AWAY = "--exclude=node2"
"""Words for jobs beside the one that loses node2."""
SLURM = ["--scheduler", "slurm", "--time", "10m"]


@dataclass
class Ended:
    """A job that has come to its end: its run, what Slurm knows about it, and its log."""

    out: Path
    info: dict[str, str]
    log: str


@pytest.fixture(scope="module")
def beside(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Ended]]]:
    """Two jobs that wait most of their time, so they run beside the other tests; slow links make their runs last."""
    folder = tmp_path_factory.mktemp("beside")
    assert cluster.lab("slow", "node2", "500").returncode == cluster.lab("slow", "node3", "1000").returncode == 0
    with ThreadPoolExecutor() as pool:
        yield {
            "limit": pool.submit(hit_the_limit, cluster, folder / "limit"),
            "moved": pool.submit(lose_the_job_and_a_node, cluster, folder / "moved"),
        }
    for node in ("node2", "node3"):
        cluster.lab("fast", node)


def hit_the_limit(cluster: Cluster, folder: Path) -> Ended:
    """A run that does not fit into its minute: most of it is gone before the first start begins."""
    out = folder / "run"
    setup = [
        f"export PATH={Path(sys.executable).parent}:$PATH PYTHONPATH={REPOSITORY}",
        '[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || sleep 35',
    ]
    site = cluster.site(folder, setup=setup, directives=[AWAY])
    shape = ["--scheduler", "slurm", "--nodes", "2", "--time", "1m", "--site", site]
    # no checkpoint but the one at the end
    job = cluster.submit(CONFIG, *shape, "--out", out, *LONG, "--checkpoint.every", "100000")
    info = cluster.wait_for(job, "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", seconds=280)
    return Ended(out, info, cluster.log(out, job))


def lose_the_job_and_a_node(cluster: Cluster, folder: Path) -> Ended:
    """`scontrol requeue` in the middle of a run, then its node2 without Slurm's daemon, which is lost to Slurm."""
    out = folder / "run"
    words = ["--nodes", "2", "--site", cluster.site(folder), "--out", out, *LONG, "--checkpoint.every", "1"]
    job = cluster.submit(CONFIG, *SLURM, *words)

    def wait_for_rounds(more: int) -> None:
        before = rounds_done(out)
        wait_until(lambda: rounds_done(out) >= before + more, 120, lambda: cluster.log(out, job))

    wait_for_rounds(3)
    assert cluster.job(job)["NodeList"] == "node[1-2]"
    assert cluster.lab("head", "scontrol", "requeue", job).returncode == 0
    wait_until(lambda: "resuming after" in cluster.log(out, job), 120, lambda: cluster.log(out, job))
    wait_for_rounds(2)
    cluster.lab("slow", "node2", "200")  # it must not end before Slurm misses the node
    try:
        assert cluster.lab("node2", "pkill", "-KILL", "-x", "slurmd").returncode == 0
        wait_until(lambda: cluster.job(job)["Restarts"] == "2", 90, lambda: cluster.job(job))
        cluster.wait_for(job, "RUNNING", "COMPLETED", "FAILED", seconds=90)
    finally:
        cluster.lab("node2", "slurmd", "-N", "node2")
    info = cluster.wait_for(job, "COMPLETED", "FAILED", "CANCELLED")
    return Ended(out, info, cluster.log(out, job))


def test_the_cluster_comes_up_quickly(cluster: Cluster) -> None:
    assert cluster.seconds < 60
    done = cluster.lab("head", "sinfo", "-h", "-N", "-o", "%n %T")
    assert sorted(set(done.stdout.split("\n")) - {""}) == [f"{node} idle" for node in cluster.nodes]


def test_slurm_accepts_the_script_before_anything_is_queued(cluster: Cluster, out: Path, tmp_path: Path) -> None:
    words = ["--nodes", "3", "--ranks-per-node", "2", "--gpus-per-node", "2", "--cpus-per-rank", "2", "--dry-run"]
    text = cluster.fedhpc("submit", str(CONFIG), *SLURM, *words, "--out", str(out))
    assert text.returncode == 0, text.stderr
    script = tmp_path / "job.sh"
    script.write_text(text.stdout)
    done = cluster.lab("head", "sbatch", "--test-only", str(script))
    assert done.returncode == 0, done.stderr
    assert re.search(r"to start at .* using 12 processors on nodes node\[1-3\]", done.stderr), done.stderr
    for file in sorted((REPOSITORY / "launch" / "slurm").glob("*.sbatch")):
        plain = cluster.lab("head", "sbatch", "--test-only", "--cpus-per-task=1", str(file), "x")
        assert plain.returncode == 0, f"{file}: {plain.stderr}"


@pytest.mark.usefixtures("beside")
def test_srun_without_pmix_would_give_singletons_and_is_refused_in_time(cluster: Cluster, out: Path) -> None:
    began = time.monotonic()
    done = cluster.lab("head", "srun", AWAY, "-n", "2", sys.executable, "-m", "fedhpc", *run_words(out))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "srun started 2 tasks but MPI sees 1 rank" in done.stderr
    assert "srun --mpi=pmix" in done.stderr
    assert time.monotonic() - began < 10
    assert not out.exists()


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize(("launcher", "per_node"), [("srun", 2), ("mpirun", 1)])
def test_a_submitted_run_ends_with_the_bits_of_one_process(
    launcher: str, per_node: int, cluster: Cluster, reference: str, out: Path, tmp_path: Path
) -> None:
    flags = ["--bind-to", "none", "--mca", "coll", "^han"] if launcher == "mpirun" else []
    site = cluster.site(tmp_path, launcher=launcher, launcher_flags=flags, directives=[AWAY])
    shape = ["--nodes", "2", "--ranks-per-node", str(per_node), "--site", site]
    job = cluster.submit(CONFIG, *SLURM, *shape, "--out", out, *SHORT)
    info = cluster.wait_for(job, "COMPLETED", "FAILED")
    assert info["JobState"] == "COMPLETED", cluster.log(out, job)
    assert sha(out) == reference
    ranks = json.loads((out / "environment.json").read_text())["ranks"]
    expected = [(node, local) for node in ("node1", "node3") for local in range(per_node)]
    assert [(r["host"], r["local_rank"]) for r in ranks] == expected


@pytest.mark.usefixtures("beside")
def test_two_jobs_of_an_array_share_one_sweep(cluster: Cluster, out: Path, tmp_path: Path) -> None:
    config = REPOSITORY / "configs" / "smoke" / "sweep.yaml"
    few = ["--sweep.datasets", "{rotated_digits: null}", "--sweep.n_hparams", "1", "--sweep.n_trials", "1"]
    few += ["--sweep.algorithms", "[erm]", "--sweep.steps", "11"]
    shape = ["--mode", "sweep", "--array", "2", "--site", cluster.site(tmp_path, directives=[AWAY])]
    job = cluster.submit(config, *SLURM, *shape, "--out", out, *few)
    cluster.wait_for(job, "COMPLETED", "FAILED")
    logs = "\n".join(p.read_text() for p in sorted((out / "log").glob("job-*.out")))
    status = cluster.fedhpc("sweep", str(config), *few, "--out", str(out), "--status", "--json")
    assert status.returncode == 0, status.stderr + logs
    tree = json.loads(status.stdout)
    assert (tree["missing"], tree["failed"], tree["running"]) == (0, 0, 0), logs
    assert tree["done"] > 0


@pytest.mark.usefixtures("beside")
def test_a_study_is_submitted_like_a_run(cluster: Cluster, out: Path, tmp_path: Path) -> None:
    config = REPOSITORY / "configs" / "smoke" / "quickstart_study.yaml"
    few = ["--runs", "[hem/fedavg.yaml, hem/scaffold.yaml]"]
    few += ["--settings", "{rounds: 1, warmup_rounds: 0, cohort.size: 4}"]
    shape = ["--mode", "study", "--ranks-per-node", "2", "--site", cluster.site(tmp_path, directives=[AWAY])]
    job = cluster.submit(config, *SLURM, *shape, "--out", out, *few)
    info = cluster.wait_for(job, "COMPLETED", "FAILED")
    assert info["JobState"] == "COMPLETED", cluster.log(out, job)
    ends = [json.loads(file.read_text()) for file in out.glob("*/done")]
    assert [(end["rounds"], end["ranks"]) for end in ends] == [(1, 2)] * 2, cluster.log(out, job)


@pytest.mark.usefixtures("beside")
def test_a_cancelled_job_leaves_nothing_running_and_can_be_resumed(cluster: Cluster, out: Path, tmp_path: Path) -> None:
    site = cluster.site(tmp_path, directives=[AWAY])
    words = ["--nodes", "2", "--site", site, "--out", out, *LONG, "--rounds", "100000", "--checkpoint.every", "1"]
    job = cluster.submit(CONFIG, *SLURM, *words)
    wait_until(lambda: rounds_done(out) >= 3, 120, lambda: cluster.log(out, job))
    cluster.lab("head", "scancel", job)
    assert cluster.wait_for(job, "CANCELLED", seconds=60)["Restarts"] == "0"
    wait_until(lambda: not cluster.lab("head", "squeue", "-h", "-j", job).stdout.strip(), 60, lambda: job)
    assert cluster.ranks(out) == {}
    assert list((out / "checkpoints").glob("round-*"))
    assert not (out / "done").exists()


@pytest.mark.usefixtures("beside")
def test_gpus_that_slurm_gives_are_shown_per_rank(cluster: Cluster, out: Path) -> None:
    words = [sys.executable, "-m", "fedhpc", "doctor", "--json", "--megabytes", "0.1", "--out", str(out.parent)]
    shape = [AWAY, "-N", "1", "--ntasks-per-node=2", "--gpus-per-task=1", "--mpi=pmix"]
    done = cluster.lab("head", "srun", *shape, *words, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    tree = json.loads(done.stdout)
    assert [r["given"] for r in tree["ranks"]] == ["0", "1"]
    assert any("torch sees none" in v["text"] for v in tree["verdicts"])


@pytest.mark.usefixtures("beside")
def test_plain_sbatch_works_with_a_configuration(cluster: Cluster, reference: str, out: Path) -> None:
    file = REPOSITORY / "launch" / "slurm" / "run.sbatch"
    if not (REPOSITORY / ".venv" / "bin" / "activate").exists():
        pytest.skip("the plain file sources .venv")
    small = [AWAY, "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", f"--output={out.parent}/log"]
    done = cluster.lab("head", "env", f"OUT={out}", "sbatch", *small, str(file), str(CONFIG), *SHORT)
    job = re.findall(r"\d+", done.stdout)[-1]
    info = cluster.wait_for(job, "COMPLETED", "FAILED")
    assert info["JobState"] == "COMPLETED", (out.parent / "log").read_text()
    assert sha(out) == reference


def test_a_time_limit_is_kept_by_the_run_itself_and_the_job_requeued(
    beside: dict[str, Future[Ended]], undisturbed: str
) -> None:
    """No signal is asked for: the run knows from Slurm when its minute is over."""
    ended = beside["limit"].result()
    assert ended.info["JobState"] == "COMPLETED", ended.log
    assert int(ended.info["Restarts"]) >= 1, f"all of it fitted: {ended.log}"
    assert "the job's time is running out" in ended.log
    assert sha(ended.out) == undisturbed


def test_a_requeued_job_and_one_that_lost_a_node_go_on_to_the_same_bits(
    beside: dict[str, Future[Ended]], cluster: Cluster, undisturbed: str
) -> None:
    ended = beside["moved"].result()
    assert ended.info["JobState"] == "COMPLETED", ended.log
    assert ended.info["Restarts"] == "2", ended.log
    assert ended.info["NodeList"] == "node[1,3]", ended.log
    assert ended.log.count("resuming after round") == 2, ended.log
    assert re.findall(r"job \S+, start (\d)", ended.log) == ["1", "2", "3"], "the log of the first starts is kept"
    assert sha(ended.out) == undisturbed
    wait_until(lambda: cluster.ranks(ended.out) == {}, 30, lambda: cluster.ranks(ended.out))


def test_the_environment_of_the_tests_has_no_outer_job() -> None:
    assert not [name for name in environment() if name.startswith(("SLURM_", "OMPI_"))]
