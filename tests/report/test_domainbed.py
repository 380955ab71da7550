"""DomainBed's layout for sweeps of ours."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from fedhpc.report.domainbed import original_latex, original_text, report_sweep
from fedhpc.report.original import export_original
from fedhpc.report.sweeps import load, results
from tests.report.own_sweep import specs, write_sweep

LONG = "an_environment_with_a_long_name"


def test_columns_have_the_original_labels(tmp_path: Path) -> None:
    labels = {"pacs": ["art_painting", "cartoon", "photo", "sketch"], "mine": ["x", "y", "z"]}
    folder = write_sweep(tmp_path, [*specs(), *specs("mine", 3)], labels)
    found = results(load(folder), compat=True)
    heads = [line.split() for line in original_text(found).splitlines() if line.startswith("Algorithm")]
    assert heads[:3] == [
        ["Algorithm", "A", "C", "P", "S", "Avg"],
        ["Algorithm", "x", "y", "z", "Avg"],
        ["Algorithm", "PACS", "mine", "Avg"],
    ]


def test_latex_is_whole_and_escaped_whatever_the_names(tmp_path: Path) -> None:
    labels = {"my_own_very_long_dataset_name": [LONG, "b%", "c&d"]}
    folder = write_sweep(tmp_path, specs("my_own_very_long_dataset_name", 3), labels)
    text = original_latex(results(load(folder), compat=True))
    assert text.count("{") == text.count("}")
    assert r"\subsubsection{my\_own\_very\_long\_dataset\_name}" in text
    assert rf"\textbf{{{LONG.replace('_', chr(92) + '_')}}}" in text
    assert r"\textbf{b\%}" in text
    assert not re.search(r"(?<!\\)_", text)


def test_the_plan_stays_in_the_files_of_a_report(tmp_path: Path) -> None:
    trials = specs(algorithms=("erm", "irm"))
    labels = {"pacs": list("wxyz")}
    folder = write_sweep(tmp_path, trials, labels, finished=[t for t in trials if t.algorithm == "erm"][1:])
    report_sweep(folder)
    before = {name: (folder / "report" / name).read_text() for name in ("sweep.json", "selected.sh")}
    written = report_sweep(folder, style="domainbed")
    assert "IRM" not in written.text, "the original has no rows without records"
    after, plain = json.loads(written.json), json.loads(before["sweep.json"])
    assert (after["rules"], plain["rules"]) == ("domainbed", "fedhpc")
    assert after["trials"] == plain["trials"] == {"planned": 80, "finished": 39}
    assert after["missing"] == plain["missing"]
    selected = (folder / "report" / "selected.sh").read_text()
    assert "no plan" not in selected
    assert re.findall(r"--only [0-9a-f]{16}@\d+,", selected)
    assert len(selected.splitlines()) == len(before["selected.sh"].splitlines())


def test_chosen_trials_are_trained_again_from_any_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sweep(tmp_path / "a b", specs(), {"pacs": list("wxyz")})
    monkeypatch.chdir(tmp_path)
    report_sweep(Path("a b"))
    lines = (tmp_path / "a b" / "report" / "selected.sh").read_text().splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("fedhpc ")]
    assert {Path(words[2]) for words in commands} == {tmp_path / "a b" / "sweep.yaml"}
    assert len(commands) == 3
    done = subprocess.run(["sh", tmp_path / "a b" / "report" / "selected.sh"], capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.endswith("name the folder to train in: sh FILE OUT\n"), "and no command was started"


def test_columns_without_planned_trials_have_an_x(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, specs(pairs=False), {"pacs": list("wxyz")})
    found = results(load(folder), ["leave_one_domain_out"], compat=True)
    row = next(line for line in original_text(found).splitlines() if line.startswith("ERM"))
    assert row.split() == ["ERM", "X", "X", "X", "X", "X"]


def test_an_export_has_arguments_as_the_original_writes_them(tmp_path: Path) -> None:
    trials = [*specs(pairs=False)[:1], *specs("colored_mnist", 3, hparams={"lr": 0.01}, steps=7, checkpoint_freq=2)[:1]]
    folder = write_sweep(tmp_path / "ours", trials, {"pacs": list("wxyz"), "colored_mnist": list("abc")})
    assert export_original(folder, tmp_path / "theirs", "DATA") == 2
    args = {}
    for run in (tmp_path / "theirs").iterdir():
        rows = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
        args[rows[0]["args"]["dataset"]] = rows[0]["args"]
        assert rows[0]["args"]["output_dir"] == str(run)
        assert (run / "done").read_text() == "done"
    assert {args["PACS"][key] for key in ("hparams", "steps", "checkpoint_freq")} == {None}
    assert (args["ColoredMNIST"]["steps"], args["ColoredMNIST"]["checkpoint_freq"]) == (7, 2)
    assert args["ColoredMNIST"]["hparams"] == '{"lr": 0.01}'
    assert args["PACS"].keys() == {
        "algorithm", "checkpoint_freq", "data_dir", "dataset", "holdout_fraction", "hparams", "hparams_seed",
        "output_dir", "save_model_every_checkpoint", "seed", "skip_model_save", "steps", "task", "test_envs",
        "trial_seed", "uda_holdout_fraction",
    }  # fmt: skip
    assert args["PACS"]["data_dir"] == "DATA"
