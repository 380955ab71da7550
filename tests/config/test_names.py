"""A plug-in section may be given as the bare name of its plug-in, in files and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedhpc.commands._configs import load_run
from fedhpc.config import RunConfig, plan_study
from fedhpc.errors import ConfigError

TEXT = "rounds: 3\n{}partition: {{kind: iid, clients: 4}}\nlocal: {{momentum: 0}}\n"
MEDICAL = "rounds: 3\nscenario: naive\nrecipe: cb\nalgorithm: scaffold\nlocal: {steps: 2, momentum: 0}\n"


def load_text(folder: Path, text: str, *words: str) -> RunConfig:
    (folder / "run.yaml").write_text(text)
    return load_run(str(folder / "run.yaml"), words)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("algorithm: scaffold\n", []),
        ("", ["--algorithm", "scaffold"]),
        ("algorithm: fedprox\n", ["--algorithm=scaffold"]),
        ("algorithm: {name: fedprox, mu: 0.3}\n", ["--algorithm", "scaffold"]),
        ("algorithm: fedprox\n", ["--algorithm", "fedavg", "--algorithm.name", "scaffold"]),
    ],
)
def test_a_bare_name_is_the_plugins_section(section: str, words: list[str], tmp_path: Path) -> None:
    config = load_text(tmp_path, TEXT.format(section), *words)
    assert config == load_text(tmp_path, TEXT.format("algorithm: {name: scaffold}\n"))


def test_further_keys_go_beside_a_bare_name(tmp_path: Path) -> None:
    for section, words in (("algorithm: fedprox\n", []), ("", ["--algorithm", "fedprox"])):
        config = load_text(tmp_path, TEXT.format(section), *words, "--algorithm.mu", "0.3")
        assert (config.algorithm_name, config.algorithm.mu) == ("fedprox", 0.3)


def test_every_section_of_a_medical_run(tmp_path: Path) -> None:
    config = load_text(tmp_path, MEDICAL)
    tree = config.to_dict()
    assert (tree["scenario"]["kind"], tree["recipe"]["name"], tree["algorithm"]["name"]) == ("naive", "cb", "scaffold")
    other = load_text(
        tmp_path, MEDICAL, "--recipe", "er", "--scenario", "localized", "--algorithm", "fednova"
    ).to_dict()
    assert (other["scenario"]["kind"], other["recipe"]["name"]) == ("localized", "er")


def test_a_study_varies_bare_names(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(MEDICAL)
    for key in ("recipe", "recipe.name"):
        (tmp_path / "study.yaml").write_text(
            f"runs: [run.yaml]\nvary: {{{key}: [er, gb]}}\nsettings: {{algorithm: fedprox}}\n"
        )
        planned = plan_study([str(tmp_path / "study.yaml")], [], load_run)
        assert [run.name for run in planned] == ["run-recipeer-seed0", "run-recipegb-seed0"]
    assert {run.config.algorithm_name for run in planned} == {"fedprox"}


def test_a_wrong_name_says_where_it_stands(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run.yaml: recipe.name must be one of .*did you mean 'crt'"):
        load_text(tmp_path, MEDICAL.replace("recipe: cb", "recipe: ctr"))
    with pytest.raises(ConfigError, match=r"command line: --recipe.name must be one of"):
        load_text(tmp_path, MEDICAL, "--recipe", "cbb")
