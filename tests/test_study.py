"""A study's file: which runs it plans, and where a mistake in it is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedhpc.commands._configs import load_run
from fedhpc.config import plan_study
from fedhpc.errors import ConfigError

RUN = "rounds: 1\ndata: {dataset: digits}\npartition: {kind: iid, clients: 2}\n"


def write(folder: Path, study: str) -> str:
    (folder / "run.yaml").write_text(RUN)
    (folder / "study.yaml").write_text(f"runs: [run.yaml]\n{study}")
    return str(folder / "study.yaml")


@pytest.mark.parametrize(
    ("study", "words", "named"),
    [
        ("vary: {local.lrr: [1]}", [], "{file}: vary: unknown key 'local.lrr' (did you mean 'local.lr'?)"),
        ("settings: {local.lrr: 1}", [], "{file}: settings: unknown key 'local.lrr'"),
        ("settings: {local.lr: fast}", ["--rounds=2"], "{file}: settings: local.lr must be"),
        ("settings: {algorithm: scafold}", [], "{file}: settings: algorithm.name must be one of"),
        ("settings: {rounds.x: 1}", [], "{file}: settings: rounds.x: 'rounds' is not a section"),
        ("settings: {'local lr': 1}", [], "{file}: settings must have keys such as local.lr"),
        ("settings: {local.lr: 1}", ["--local.lr=fast"], "command line: --local.lr must be"),
        ("settings: {local.lr: 1}", ["--local.lrr=1"], "command line: unknown key 'local.lrr'"),
        ("vary: {local.lr: 1}", [], "{file}: vary must be a mapping whose values are a list, got {{'local.lr': 1}}"),
        ("setings: {local.lr: 1}", [], "{file}: unknown key 'setings' (did you mean 'settings'?)"),
        ("", ["--bogus"], "command line: unknown option '--bogus'"),
        ("", ["--seed_s", "--rounds=2"], "command line: unknown option '--seed_s' (did you mean 'seed"),
        ("", ["--seeds"], "command line: --seeds needs a value"),
    ],
)
def test_a_mistake_is_named_with_its_place(study: str, words: list[str], named: str, tmp_path: Path) -> None:
    file = write(tmp_path, study)
    with pytest.raises(ConfigError) as raised:
        plan_study([file], words, load_run)
    assert str(raised.value).startswith(named.format(file=file))


def test_a_run_that_is_not_there_is_named_with_the_study(tmp_path: Path) -> None:
    file = write(tmp_path, "")
    (tmp_path / "run.yaml").unlink()
    with pytest.raises(ConfigError, match=r"study.yaml: runs: 'run.yaml': there is no file .*run.yaml"):
        plan_study([file], [], load_run)


def test_a_study_or_a_sweep_is_no_run(tmp_path: Path) -> None:
    file = write(tmp_path, "")
    with pytest.raises(ConfigError, match=r"study.yaml: this is a study: fedhpc study .*study.yaml"):
        load_run(file)
    (tmp_path / "sweep.yaml").write_text("sweep: {datasets: [rotated_digits]}\n")
    with pytest.raises(ConfigError, match=r"this is a sweep: fedhpc sweep .*sweep.yaml"):
        load_run(str(tmp_path / "sweep.yaml"))
