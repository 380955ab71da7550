"""What a study has planned and not done is told by every report on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedhpc.commands._configs import load_run
from fedhpc.commands._study_plan import study_status, without_copy, write_plan
from fedhpc.config import plan_study
from fedhpc.data.schema import MANIFEST
from fedhpc.errors import DIVERGES_AGAIN, ConfigError, FedhpcError
from fedhpc.report import report
from fedhpc.report.collect import STUDY, find_runs
from fedhpc.report.hem_runs import read_runs
from fedhpc.report.studies import IN_VAIN, read_plan, study_notes
from fedhpc.runs.rundir import RunDirectory
from tests.report.medical_runs import CONFIG as MEDICAL
from tests.report.medical_runs import write_run as write_medical
from tests.report.synthetic import write_run

RUN = "rounds: 8\ndata: {dataset: digits}\npartition: {kind: iid, clients: 2}\n"


def plan(folder: Path, seeds: str = "[0,1]", text: str = RUN, *options: str) -> Path:
    """A study's directory in which nothing but its plan is there."""
    file = folder / "a b.yaml"
    file.write_text(text)
    words = [f"--seeds={seeds}", *options]
    write_plan(folder / "s", [str(file)], words, plan_study([str(file)], words, load_run))
    return folder / "s"


def test_a_plan_grows_and_keeps_what_has_begun(tmp_path: Path) -> None:
    study = plan(tmp_path)
    with pytest.raises(ConfigError, match="no run has begun"):
        find_runs([study])
    write_run(study / "a b-seed0")
    before = (study / STUDY).read_bytes()
    plan(tmp_path)
    assert (study / STUDY).read_bytes() == before
    plan(tmp_path, "[0,2]", RUN, "--rounds=9")
    runs = read_plan(study)
    assert [run.seed for run in runs.values()] == [0, 1, 2]
    assert [run.config["rounds"] for run in runs.values()] == [8, 8, 9]
    assert [run.options for run in runs.values()] == [("--seeds=[0,1]",)] * 2 + [("--seeds=[0,2]", "--rounds=9")]
    assert {run.files for run in runs.values()} == {(str(tmp_path / "a b.yaml"),)}
    assert not [path for path in study.iterdir() if path.name.startswith(".")]


def test_a_job_s_copy_of_the_data_is_not_kept(tmp_path: Path) -> None:
    for name, content in (("data", "a"), ("copy", "a"), ("other", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).write_text(content)
    file = tmp_path / "run.yaml"
    file.write_text(RUN.replace("digits}", f"mnist, root: {tmp_path}/data}}"))

    def kept(*options: str) -> tuple[list[str], str | None]:
        found, planned = without_copy([str(file)], options, plan_study([str(file)], options, load_run))
        return list(found), planned[0].config.data.root

    copy, other = str(tmp_path / "copy"), str(tmp_path / "other")
    assert kept("--rounds=2", "--data.root", copy) == (["--rounds=2"], str(tmp_path / "data"))
    assert kept(f"--data.root={copy}", "--rounds=2") == (["--rounds=2"], str(tmp_path / "data"))
    assert kept("--data.root", other) == (["--data.root", other], other)


def test_every_report_names_what_is_missing_and_the_command(tmp_path: Path) -> None:
    study = plan(tmp_path, "[0,1,2]")
    write_run(study / "a b-seed0")
    write_run(study / "a b-seed1", finished=False)
    (said,) = study_notes([tmp_path])
    assert "2 of 3 planned runs are not finished: a b-seed1 (unfinished), a b-seed2 (not begun); go on with: " in said
    assert said.endswith(f"fedhpc study '{tmp_path}/a b.yaml' --out {study} '--seeds=[0,1,2]'")
    written = report([study])
    assert f"note: {said}" in written.text
    assert said in json.loads((study / "report" / "summary.json").read_text())["notes"]
    assert said in (study / "report" / "summary.txt").read_text()
    assert said in read_runs([study], target=0.5, cap=8).warnings
    for name in ("a b-seed1", "a b-seed2"):
        (study / name).mkdir(exist_ok=True)
        (study / name / "done").write_text("{}")
    assert study_notes([study]) == []


def test_for_a_run_that_diverged_the_note_says_what_helps(tmp_path: Path) -> None:
    study = plan(tmp_path)
    why = f"2 of 9 clients diverged in round 1 (client 0: a; client 1: b); begin anew with less: {DIVERGES_AGAIN}"
    write_run(study / "a b-seed1", finished=False)
    (study / "a b-seed1" / "failed").write_text(f"{why}\n")
    missing, diverged = study_notes([study])
    assert "1 of 2 planned runs are not finished: a b-seed0 (not begun); go on with: fedhpc study" in missing
    named = "1 of 2 planned runs diverged: a b-seed1 (2 of 9 clients diverged in round 1); "
    assert f"{named}{IN_VAIN}, and run: fedhpc study" in diverged
    assert "go on with" not in diverged


def test_a_medical_report_names_runs_that_are_not_there(tmp_path: Path) -> None:
    study = plan(tmp_path, "[0,1]", MEDICAL.format(seed=0, recipe="cb", tasks=3, lr=0.1))
    write_medical(study / "a b-seed0", "cb", 0)
    report([study])
    notes = json.loads((study / "report" / "medical.json").read_text())["notes"]
    assert any(note.startswith("a b-seed1 (seed 1) was planned and not begun") for note in notes)
    assert not any(note.startswith("a b-seed0") for note in notes)


def test_a_damaged_plan_is_told(tmp_path: Path) -> None:
    study = plan(tmp_path)
    write_run(study / "a b-seed0")
    (study / STUDY).write_text("{}")
    assert "which runs are missing is not known" in report([study]).text
    with pytest.raises(FedhpcError, match="remove it and start the study again"):
        plan(tmp_path)


def test_status_tells_running_from_missing(tmp_path: Path) -> None:
    study = plan(tmp_path, "[0,1,2,3]")
    write_run(study / "a b-seed0")
    write_run(study / "a b-seed1", finished=False)
    (study / "a b-seed2").mkdir()
    (study / "a b-seed2" / "failed").write_text("diverged\n")
    running = RunDirectory(study / "a b-seed1")
    running.open(resume=True)
    status = study_status(study, []).to_dict()
    assert [run["state"] for run in status["runs"]] == ["done", "running", "failed", "missing"]
    assert status["runs"][2]["why"] == "diverged"
    running.close()
    assert study_status(study, []).count("missing") == 2
    assert "a b-seed2 (failed: diverged)" in study_notes([study])[0]
