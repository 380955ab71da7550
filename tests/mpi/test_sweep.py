"""A sweep under real mpirun: killed, gone on with by two jobs at once, it ends as if nothing had happened."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from launcher import REPOSITORY, environment, mpirun, start

from fedhpc.report.selection import criteria
from fedhpc.report.trial_files import METRICS, read_sweep
from fedhpc.runs.records import read_records

YAML = """
sweep:
  datasets: {rotated_digits: null}
  algorithms: [erm, mixup, dann]
  n_hparams: 1
  n_trials: 1
  steps: 12
  checkpoint_freq: 6
  hparams: {batch_size: 8}
model: {name: mlp_features, hidden: [16]}
device: {threads: 1, name: cpu}
checkpoint: {seconds: 0.001}
"""
TRIALS, KILLED_AFTER = 30, 4


def values(sweep: Path) -> dict[str, list[tuple[object, ...]]]:
    """All records that must repeat, by trial."""
    return {
        trial.run: [
            (r.what, r.value, r.round, r.environment)
            for r in read_records(sweep / trial.run / METRICS)
            if r.what not in ("step_seconds", "memory_gib")
        ]
        for trial in read_sweep(sweep).trials
    }


def alone(words: list[str | Path]) -> str:
    """Run `python WORDS` as one process; returns what it printed."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=environment(),
        cwd=REPOSITORY,
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_killed_and_gone_on_with_by_two_jobs_it_ends_with_the_same_records(tmp_path: Path) -> None:
    config, whole, broken = tmp_path / "small.yaml", tmp_path / "whole", tmp_path / "broken"
    config.write_text(YAML, encoding="utf-8")

    def command(out: Path, *more: str) -> list[str | Path]:
        return ["-m", "fedhpc", "sweep", config, "--out", out, *more]

    def status(out: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(alone(command(out, "--status", "--json")))
        return {key: found[key] for key in ("done", "running", "failed", "missing")}

    undisturbed = mpirun(2, command(whole), timeout=120)
    assert undisturbed.returncode == 0, undisturbed.stderr
    expected = values(whole)
    assert len(expected) == TRIALS

    victim = start(2, command(broken))
    end = time.monotonic() + 90
    while len(list(broken.glob("queue/*.done"))) < KILLED_AFTER:
        assert time.monotonic() < end, victim.out + victim.err
        time.sleep(0.01)
    assert victim.kill_all() == []
    left = status(broken)
    assert KILLED_AFTER <= left["done"] < TRIALS
    assert left["failed"] == 0
    assert sum(left.values()) == TRIALS

    told = [tmp_path / "first", tmp_path / "second"]
    jobs = [start(ranks, command(broken, f"--exit-file={file}")) for ranks, file in zip((1, 3), told, strict=True)]
    assert [job.wait(timeout=120) for job in jobs] == [0, 0], jobs[0].err + jobs[1].err
    assert [file.read_text() for file in told] == ["0\n", "0\n"]
    assert [job.out.splitlines()[0] for job in jobs] == [f"{TRIALS} trials, 1 rank", f"{TRIALS} trials, 3 ranks"]
    assert status(broken) == {"done": TRIALS, "running": 0, "failed": 0, "missing": 0}
    assert values(broken) == expected
    taken_over = [json.loads(done.read_text())["attempts"] for done in broken.glob("trials/*/*/*/done")]
    assert max(taken_over) == 2, "what the killed ranks had begun"
    assert len(list(broken.glob("queue/*.done"))) == TRIALS

    tables = json.loads(alone(["-m", "fedhpc", "report", broken, "--json"]))["tables"]
    assert [table["criterion"] for table in tables] == list(criteria())
    cells = [cell for table in tables for row in table["rows"] for cell in row["cells"]]
    assert len(cells) == 3 * 3 * 4
    assert all(cell["mean"] is not None and not cell["missing"] for cell in cells)


def test_a_rank_that_hangs_in_a_trial_loses_it_and_is_named(tmp_path: Path) -> None:
    """Its heartbeat could beat for ever; the other ranks would wait for its trial, then for it."""
    config, out = tmp_path / "small.yaml", tmp_path / "sweep"
    config.write_text(f"{YAML}queue: {{heartbeat: 0.3, stale_after: 1}}\nhang_seconds: 4\n", encoding="utf-8")
    limits = ["--sweep.algorithms", "[erm]", "--sweep.criteria", "[oracle]"]
    program = REPOSITORY / "tests" / "mpi" / "programs" / "hanging_trial.py"
    job = start(2, [program, "1", "sweep", config, "--out", out, *limits])
    assert job.wait(timeout=90) != 0
    assert re.search(r"error: rank 1 on \S+ makes no progress .*last known phase: erm on rotated_digits", job.err)
    assert "run the same command again" in job.err
    assert len(list(out.glob("queue/*.done"))) == 4, "rank 0 took the trial over"
    assert "in hang" in (out / "log" / "rank-00001.log").read_text(encoding="utf-8"), "where it hangs"
