"""Medical runs give the same bits on any number of ranks, and after a kill in the middle of a task."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from launcher import REPOSITORY, mpirun, ranks_of, start, still_alive
from safetensors.torch import load_file
from test_survive import SurvivingJob, has_ulfm, wait_for_round

PROGRAMS = Path(__file__).parent / "programs"
CONFIGS = REPOSITORY / "configs" / "smoke" / "medical"
RECIPES = ("erm", "fedavg", "mixup", "swad", "er", "gb", "cb", "crt")
SHORT = (
    "--rounds=4 --local.steps=2 --scenario.tasks=2 --scenario.clients=3 --model.hidden=[16] "
    "--checkpoint.every=1 --checkpoint.keep=30"
)
NORM = (
    "--rounds=2 --local.steps=1 --scenario.tasks=1 --scenario.clients=2 --model.name=resnet18 --model.hidden=[64] "
    "--local.lr=0.01"
)
"""Batch norm: statistics that are averaged, that stay with their clients (erm), that are found anew (swad)."""
MIDDLE, BORDERS = 5, (4, 6)
"""Rounds of which the checkpoint is gone on from: in a task, at the border of two, and of two stages of crt."""
CUTS = {
    name: (*BORDERS, MIDDLE) if name in ("fedavg", "swad", "crt", "er") else (MIDDLE,)
    for name in (
        *RECIPES,
        "crt-compat",
        "swad-compat",
        "swad-valley",
        "own-head",
        "crt-own-head",
        "adam",
        "cb-scaffold",
        "crt-feddyn",
    )
}


def cases() -> dict[str, list[Any]]:
    def case(recipe: str, options: str) -> list[Any]:
        return [str(CONFIGS / f"{recipe}.yaml"), options.split()]

    found = {recipe: case(recipe, SHORT) for recipe in RECIPES}
    found["crt"] = case("crt", f"{SHORT} --recipe.head_share=0.5")
    found["crt-compat"] = case("crt", f"{SHORT} --recipe.compat=true")
    valley = f"{SHORT} --recipe.num_converge=1 --recipe.num_tolerance=2 --local.lr=0.3"  # while the loss falls, both
    found["swad-valley"] = case("swad", valley)  # rules take the latest segment
    found["swad-compat"] = case("swad", f"{valley} --recipe.compat=true")
    found["own-head"] = case("fedavg", f"{SHORT} --recipe.head=own")
    found["crt-own-head"] = case("crt", f"{SHORT} --recipe.head=own")
    found["adam"] = case("gb", f"{SHORT} --local.optimizer=adam --local.lr=0.003 --local.momentum=0")
    found["forgetful"] = case("fedavg", f"{SHORT} --recipe.momentum=reset")
    found["cb-scaffold"] = case("cb", f"{SHORT} --algorithm.name=scaffold --local.momentum=0")
    found["crt-feddyn"] = case("crt", f"{SHORT} --algorithm.name=feddyn --local.momentum=0")
    found["pinned"] = case("swad", f"{SHORT} --placement=pinned")
    return found


def norm_cases() -> dict[str, list[Any]]:
    words = {"erm": [], "swad": ["--recipe.refresh_batches=3", "--recipe.num_converge=2"], "crt": []}
    return {name: [str(CONFIGS / f"{name}.yaml"), [*NORM.split(), *more]] for name, more in words.items()}


def run_all(folder: Path, ranks: int, resume: bool = False) -> None:
    args = [PROGRAMS / "many_runs.py", folder, *(["--resume"] if resume else [])]
    done = mpirun(ranks, args, timeout=250)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("medical")
    (folder / "cases.json").write_text(json.dumps(cases()))
    for ranks in (1, 2):
        run_all(folder, ranks)
    return folder


@pytest.fixture(scope="module")
def folder(started: Path) -> Path:
    run_all(started, 4)
    return started


@pytest.fixture(scope="module")
def resumed(folder: Path) -> Path:
    """What a kill right after some checkpoint leaves behind, and the run gone on from there on other ranks."""
    later = folder / "resumed"
    later.mkdir()
    listed = {}
    for name, case in cases().items():
        for cut in CUTS.get(name, ()):
            copy = later / f"{name}+{cut}-3"
            shutil.copytree(folder / f"{name}-2", copy)
            (copy / "done").unlink()
            for saved in (copy / "checkpoints").glob("round-*"):
                if int(saved.name.removeprefix("round-")) > cut:
                    shutil.rmtree(saved)
            listed[f"{name}+{cut}"] = case
    (later / "cases.json").write_text(json.dumps(listed))
    run_all(later, 3, resume=True)
    return later


def outcome(run: Path) -> dict[str, Any]:
    """What `done` says, and all scores that were recorded."""
    found: dict[str, Any] = json.loads((run / "done").read_text())
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    keys = ("what", "round", "client", "task", "value")
    found["scores"] = sorted(
        (str([r.get(k) for k in keys]) for r in records if r["unit"] != "s" and _is_score(r["what"])),
    )
    return found


def _is_score(what: str) -> bool:
    return "ltr" in what or "auc" in what or "accuracy" in what or what in ("loss", "train_loss", "holdout_loss")


@pytest.mark.parametrize("name", list(cases()))
def test_weights_and_scores_are_equal_on_1_2_and_4_ranks(name: str, folder: Path) -> None:
    one, *others = [outcome(folder / f"{name}-{ranks}") for ranks in (1, 2, 4)]
    assert len(one["scores"]) > 50
    for other in others:
        assert other["weights_sha256"] == one["weights_sha256"]
        assert other["scores"] == one["scores"]


@pytest.mark.slow
def test_batch_norm_gives_the_same_bits_too(tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text(json.dumps(norm_cases()))
    for ranks in (1, 2):
        run_all(tmp_path, ranks)
    for name in norm_cases():
        one, two = (outcome(tmp_path / f"{name}-{ranks}") for ranks in (1, 2))
        assert one["weights_sha256"] == two["weights_sha256"]
        assert one["scores"] == two["scores"]


@pytest.mark.parametrize("name", CUTS)
def test_a_run_goes_on_in_the_middle_of_a_task_with_the_same_bits(name: str, folder: Path, resumed: Path) -> None:
    whole = outcome(folder / f"{name}-1")
    for cut in CUTS[name]:
        broken = outcome(resumed / f"{name}+{cut}-3")
        assert broken["weights_sha256"] == whole["weights_sha256"], f"from round {cut}"
        assert broken["scores"] == whole["scores"], f"from round {cut}"


def test_what_is_different_has_different_bits(folder: Path) -> None:
    names = [name for name in cases() if name != "pinned"]
    found = {name: outcome(folder / f"{name}-1") for name in names}
    assert len({str(done["scores"]) for done in found.values()}) == len(names)
    assert outcome(folder / "pinned-4")["scores"] == outcome(folder / "swad-1")["scores"]


@pytest.mark.parametrize("name", ["crt", "crt-feddyn"])
def test_the_backbone_stays_while_a_fresh_classifier_learns(name: str, folder: Path) -> None:
    run = folder / f"{name}-2"
    saved = [run / "checkpoints" / f"round-{round:08d}" / "server.safetensors" for round in (7, 8)]
    before, after = (load_file(file)["vector.weights"] for file in saved)
    head = sum(t.numel() for key, t in load_file(run / "model.safetensors").items() if key.startswith("classifier."))
    assert torch.equal(before[:-head], after[:-head])
    assert not torch.equal(before[-head:], after[-head:])


def test_a_job_killed_in_the_middle_of_a_task_goes_on(tmp_path: Path) -> None:
    file, options = cases()["swad"]
    broken = tmp_path / "broken"
    more = ["--rounds=40", "--checkpoint.every=5"]
    args = ["-m", "fedhpc", "run", file, *options, *more, "--out"]
    job = start(3, [*args, broken])
    end = time.monotonic() + 100
    while not (broken / "checkpoints" / "round-00000050").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    ranks = ranks_of(job)
    os.kill(job.pid, signal.SIGKILL)
    assert still_alive(ranks, seconds=10) == []
    assert not (broken / "done").exists(), "the kill came too late to test anything"
    resumed = mpirun(2, [*args, broken, "--resume"], timeout=120)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming after round" in resumed.stdout
    assert mpirun(1, [*args, tmp_path / "whole"], timeout=120).returncode == 0
    assert outcome(broken) == {**outcome(tmp_path / "whole"), **_clocks(broken)}


def _clocks(run: Path) -> dict[str, Any]:
    """What may differ: seconds, and the number of ranks."""
    done = json.loads((run / "done").read_text())
    return {key: done[key] for key in ("seconds_train", "seconds_evaluate", "ranks")}


@pytest.mark.slow
def test_the_smoke_study_runs_all_recipes_and_reports(tmp_path: Path) -> None:
    study = REPOSITORY / "configs" / "smoke" / "medical.yaml"
    options = ["--rounds", "3", "--scenario.tasks", "2", "--local.steps", "2"]
    done = mpirun(4, ["-m", "fedhpc", "study", study, "--out", tmp_path / "study", *options], timeout=250)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    names = {path.name for path in (tmp_path / "study").iterdir() if (path / "done").exists()}
    assert names == {f"{recipe}-seed{seed}" for recipe in RECIPES for seed in (0, 1)}
    shown = mpirun(1, ["-m", "fedhpc", "report", tmp_path / "study"])
    assert shown.returncode == 0, shown.stderr
    for title in ("ERM", "FedAvg", "F-MixUp", "F-SWAD", "F-ER", "F-GB", "F-CB", "F-CRT"):
        assert title in shown.stdout
    files = {path.name for path in (tmp_path / "study" / "report").iterdir()}
    assert {"medical.txt", "medical_tasks.png", "medical_holdout_ltr.png", "medical_holdout_auc.png"} <= files


@pytest.mark.slow
def test_survivors_finish_all_tasks_without_the_lost_rank(tmp_path: Path) -> None:
    if not has_ulfm():
        pytest.skip("this MPI has no ULFM")
    out, file = tmp_path / "run", CONFIGS / "swad.yaml"
    options = ["--scenario.tasks=3", "--scenario.clients=5", "--rounds=20", "--local.steps=2", "--model.hidden=[16]"]
    more = ["--on_rank_loss=continue", "--checkpoint.every=5"]
    job = SurvivingJob(3, ["-m", "fedhpc", "run", file, "--out", out, *options, *more])
    wait_for_round(job, 8)
    os.kill(ranks_of(job)[2], signal.SIGKILL)
    job.wait(timeout=120)
    done = json.loads((out / "done").read_text())
    assert (done["rounds"], done["ranks"]) == (60, 2), job.err
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert {r["client"] for r in records if r["what"] == "client_lost"}
    for end in (20, 40, 60):
        scored = {r["client"] for r in records if r["what"] == "holdout_ltr" and r["round"] == end}
        assert scored == set(range(5)), "whoever was lost goes on elsewhere, with what was saved"
