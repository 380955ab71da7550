"""`fedhpc sweep` and `fedhpc report` on a sweep; killed, gone on with, and grown."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedhpc import cli
from fedhpc.report.original import read_original
from fedhpc.report.selection import criteria
from fedhpc.report.sweeps import results
from fedhpc.report.trial_files import METRICS, read_plan, read_sweep
from fedhpc.runs.records import read_records
from tests.cli.conftest import process_put_back  # noqa: F401 - applies to every test here

REPOSITORY = Path(__file__).resolve().parents[2]
YAML = """
sweep:
  datasets: {rotated_digits: null}
  algorithms: [erm, mixup]
  n_hparams: 1
  n_trials: 1
  steps: 3
  checkpoint_freq: 2
  hparams: {batch_size: 4}
model: {name: mlp_features, hidden: [8]}
device: {threads: 1, name: cpu}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "small.yaml"
    path.write_text(YAML, encoding="utf-8")
    return path


def start(*words: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "fedhpc", *map(str, words)]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def fedhpc(*words: object, code: int = 0) -> str:
    """Run the command in this process, which is cheaper than a new one; returns what it printed."""
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        cli.main([*map(str, words)])
    assert ended.value.code == code, out.getvalue()
    return out.getvalue()


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for a process, which does not outlive the test, and return what it printed."""
    try:
        return process.communicate(timeout=240)
    finally:
        process.kill()


def counts(config: Path, out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fedhpc("sweep", config, "--out", out, "--status", "--json"))
    return found


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


@pytest.fixture(scope="module")
def swept(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "sweep"
    said = fedhpc("sweep", config, "--out", out)
    assert "20 done, 0 running, 0 failed, 0 missing" in said
    return out


def test_status_and_repetition(config: Path, swept: Path) -> None:
    status = counts(config, swept)
    assert {key: status[key] for key in ("done", "running", "failed", "missing")} == {
        "done": 20, "running": 0, "failed": 0, "missing": 0,
    }  # fmt: skip
    before = (swept / "plan.json").read_bytes()
    assert "20 done" in fedhpc("sweep", config, "--out", swept)
    assert (swept / "plan.json").read_bytes() == before


def test_the_report_has_all_tables_without_a_gap(swept: Path, tmp_path: Path) -> None:
    tree = json.loads(fedhpc("report", swept, "--out", tmp_path / "a", "--json"))
    assert [t["criterion"] for t in tree["tables"]] == list(criteria())
    for table in tree["tables"]:
        assert [row["algorithm"] for row in table["rows"]] == ["erm", "mixup"]
        for row in table["rows"]:
            assert row["mean"] is not None
            assert all(cell["num_trials"] == 1 and not cell["missing"] for cell in row["cells"])
            assert all((swept / choice["run"] / "done").exists() for c in row["cells"] for choice in c["choices"])
    text = fedhpc("report", swept, "--out", tmp_path / "b", "--style", "domainbed")
    assert text.startswith("Total records: 40\n")
    assert (tmp_path / "b" / "results.txt").read_text(encoding="utf-8") in text


def test_the_export_is_what_domainbed_would_have_written(config: Path, swept: Path, tmp_path: Path) -> None:
    fedhpc("sweep", config, "--out", swept, "--export", tmp_path / "theirs")
    ours, theirs = read_sweep(swept), read_original(tmp_path / "theirs")
    assert theirs.problems == ()
    assert {(t.algorithm, t.test_envs): t.checkpoints for t in ours.trials} == {
        (t.algorithm, t.test_envs): t.checkpoints for t in theirs.trials
    }
    for one, other in zip(
        results(ours).tables["leave_one_domain_out"], results(theirs).tables["leave_one_domain_out"], strict=True
    ):
        assert [r.mean for r in one.rows] == [r.mean for r in other.rows]
    row = json.loads(next((tmp_path / "theirs").glob("*/results.jsonl")).read_text(encoding="utf-8").splitlines()[0])
    assert {"args", "hparams", "step", "epoch", "loss", "step_time", "mem_gb", "env0_in_acc", "env3_out_acc"} <= set(
        row
    )


def test_a_hole_is_named_with_the_command_that_fills_it(config: Path, swept: Path, tmp_path: Path) -> None:
    trial = next(t for t in read_sweep(swept).planned if (t.algorithm, t.test_envs) == ("mixup", (1, 2)))
    before = values(swept)
    (swept / trial.run / "done").unlink()
    cut = next(t for t in read_sweep(swept).planned if (t.algorithm, t.test_envs) == ("mixup", (0, 2)))
    lines = (swept / cut.run / METRICS).read_bytes().splitlines(keepends=True)
    (swept / cut.run / METRICS).write_bytes(b"".join(lines[:-1]))
    text = fedhpc("report", swept, "--out", tmp_path / "report")
    tree = json.loads((tmp_path / "report" / "sweep.json").read_text(encoding="utf-8"))
    assert trial.run not in values(swept)
    assert f"damaged and not counted: {swept / cut.run}/{METRICS}: ends before the trial did" in text
    command = f"fedhpc sweep {swept}/sweep.yaml --out {swept} --only {cut.id},{trial.id} --retry-failed"
    assert f"  {command}\n" in text
    said = fedhpc(*command.split()[1:])
    assert "2 trials are marked as done but have no records or models" in said
    assert values(swept) == before
    assert "mixup on rotated_digits, test environments [1, 2], hparams seed 0, trial 0" in text
    assert [t["id"] for t in tree["missing"]] == [cut.id, trial.id]
    cells = {
        (t["criterion"], row["algorithm"], cell["test_env"]): cell
        for t in tree["tables"] for row in t["rows"] for cell in row["cells"]
    }  # fmt: skip
    assert cells["leave_one_domain_out", "mixup", 1]["mean"] is None
    assert cells["leave_one_domain_out", "mixup", 1]["missing"] == [trial.id]
    assert cells["oracle", "mixup", 1]["missing"] == []


@pytest.mark.parametrize(("most", "code", "says"), [(1, 1, "4 failed, 0 missing"), (3, 75, "0 failed, 4 missing")])
def test_the_end_is_judged_by_the_configured_patience(
    most: int, code: int, says: str, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One failure each is the end of a trial or not; with 3, a second failure of all is cut short by a signal."""
    runs = 0

    def fails(*_: object) -> None:
        nonlocal runs
        runs += 1
        if runs == 8:
            os.kill(os.getpid(), signal.SIGUSR1)
        raise ValueError("made to fail")

    monkeypatch.setattr("fedhpc.sweep.run_trial.run_trial", fails)
    only = ("--sweep.criteria", "[oracle]", "--sweep.algorithms", "[erm]")
    said = fedhpc("sweep", config, "--out", tmp_path / "x", *only, "--queue.most_failures", most, code=code)
    assert f"0 done, 0 running, {says}" in said


@pytest.mark.slow  # tests/mpi/test_sweep.py does it on several ranks
def test_killed_and_gone_on_with_by_two_jobs_it_ends_with_the_same_records(
    config: Path, swept: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"
    victim = start("sweep", config, "--out", out, "--sweep.n_trials", 1)
    end = time.monotonic() + 180
    while len(list(out.glob("queue/*.done"))) < 3:
        assert time.monotonic() < end
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert 3 <= counts(config, out)["done"] < 20
    jobs = [start("sweep", config, "--out", out) for _ in range(2)]
    for job in jobs:
        said, err = finish(job)
        assert job.returncode == 0, said + err
    assert values(out) == values(swept)
    assert counts(config, out)["done"] == 20


def test_a_signal_stops_in_order_and_asks_to_be_run_again(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    job = start("sweep", config, "--out", out, "--sweep.steps", 100000, "--sweep.checkpoint_freq", 100000)
    end = time.monotonic() + 180
    while not list(out.glob("queue/*.1")):
        assert time.monotonic() < end
        time.sleep(0.02)
    time.sleep(0.5)
    job.send_signal(signal.SIGUSR1)
    said, err = finish(job)
    assert job.returncode == 75, said + err
    assert list(out.glob("queue/*.released"))
    assert list(out.glob("trials/*/*/*/attempt-1/checkpoint.safetensors"))


def test_a_sweep_may_grow_but_not_change(config: Path, swept: Path, tmp_path: Path) -> None:
    for what in ((), ("--status",)):
        said = fedhpc("sweep", config, "--out", swept, "--sweep.steps", 4, *what, code=2)
        assert "other settings (sweep.steps)" in said
    out = tmp_path / "sweep"
    criterion = ("--sweep.criteria", "[oracle]", "--sweep.algorithms", "[erm]")
    assert "4 done" in fedhpc("sweep", config, "--out", out, *criterion)
    assert "20 done" in fedhpc("sweep", config, "--out", out)
    assert "20 done" in fedhpc("sweep", config, "--out", out, *criterion)
    trial = next(t for t in read_plan(out).planned if t.algorithm == "mixup")
    said = fedhpc(*shlex.split(f"{read_plan(out).command} {trial.id}@1")[1:])
    assert "1 trials are marked as done but have no records or models" in said
    assert (out / trial.run / "model-step-1.safetensors").exists()
    alone = tmp_path / "alone"
    assert "1 done, 0 running, 0 failed, 0 missing" in fedhpc("sweep", config, "--out", alone, "--only", trial.id)
    assert values(out) == values(swept)


def test_a_dry_run_writes_nothing_and_estimates(config: Path, swept: Path, tmp_path: Path) -> None:
    said = fedhpc("sweep", config, "--out", tmp_path / "new", "--dry-run")
    assert re.search(r"a probe of a few steps on \S+, cpu, 1 thread; 20 trials to run", said)
    assert not (tmp_path / "new").exists()
    said = fedhpc("sweep", config, "--out", swept, "--dry-run", "--sweep.n_trials", 2)
    assert "from 20 finished trials on" in said
    assert "20 trials to run" in said
    both = ("--sweep.datasets", "[rotated_digits, colored_digits]")
    assert "from 20 finished trials and a probe of the rest" in fedhpc(
        "sweep", config, "--out", swept, "--dry-run", *both
    )


def test_a_dry_run_counts_what_is_not_there_yet(config: Path, tmp_path: Path) -> None:
    few = ("--sweep.criteria", "[oracle]", "--sweep.algorithms", "[erm]")
    both = ("--sweep.datasets", "{rotated_digits: null, terra_incognita: nowhere}")
    said = fedhpc("sweep", config, "--out", tmp_path / "x", *few, *both, "--dry-run", code=2)
    assert re.search(r"terra_incognita +4 +4 +4\n", said)
    assert re.search(r"all +8 +8\n", said)
    assert re.search(r"estimate: .* \(rotated_digits .*\)\n.*; 4 trials to run\n", said)
    assert "counted as published, for images of 224x224 or 28x28 pixels: terra_incognita" in said
    assert "validation part" not in said, "their numbers are not known"
    assert "sweep.datasets.terra_incognita nowhere: no such folder" in said
    tree = json.loads(fedhpc("sweep", config, *few, *both, "--dry-run", "--json", code=2).splitlines()[0])
    assert tree["counts"] == {name: {"all": 4, "oracle": 4} for name in ("rotated_digits", "terra_incognita")}
    assert (tree["open"], list(tree["absent"])) == (4, ["terra_incognita"])
    assert tree["seconds_left"] == tree["seconds_left_by_dataset"]["rotated_digits"] > 0
    alone = ("--sweep.datasets", "{terra_incognita: nowhere}", "--dry-run")
    assert "estimate" not in fedhpc("sweep", config, *few, *alone, code=2)
    assert "trials" not in fedhpc("sweep", config, "--sweep.datasets", "{mine: nowhere}", "--dry-run", code=2)


def test_mistakes_are_told_in_a_line(config: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "x")
    assert "no trial nothing" in fedhpc("sweep", config, *out, "--only", "nothing", code=2)
    said = fedhpc("sweep", config, *out, "--sweep.datasets", "[rotated_digits, pacs]", code=2)
    assert "sweep.datasets.pacs: is not embedded" in said
    assert "fedhpc prepare pacs" in said
    assert "no file" in fedhpc("sweep", config, *out, "--model.weights", "missing.pth", code=2)
    said = fedhpc("sweep", config, *out, "--sweep.stored_split", "true", code=2)
    assert "marks 0 samples of environment 0 as train" in said
    assert "dataset rotated_digits" in said
    assert "need --out" in fedhpc("sweep", config, "--status", code=2)
    assert "--json goes with" in fedhpc("sweep", config, *out, "--json", code=2)
    assert "holds no sweep; `fedhpc sweep" in fedhpc("sweep", config, *out, "--status", code=2)
    assert "holds no run" in fedhpc("report", tmp_path, tmp_path, "--json", code=2)
