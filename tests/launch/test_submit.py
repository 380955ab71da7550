"""`fedhpc submit`: from a configuration file to a script that is handed in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedhpc.cli import main
from fedhpc.commands import submit as command
from fedhpc.commands._configs import load_run
from fedhpc.config import plan_study
from tests.conftest import REPOSITORY


@dataclass
class Done:
    """What a command left."""

    returncode: int
    stdout: str
    stderr: str


Submit = Callable[..., Done]
Tool = Callable[[str, str], None]


@pytest.fixture
def submit(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Submit:
    """The command in this process, which saves half a second each time."""
    monkeypatch.chdir(REPOSITORY)

    def run(*args: str | Path) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(["submit", *map(str, args)])
        return Done(int(ended.value.code or 0), *capfd.readouterr())

    return run


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Puts a small program in the place of a scheduler's."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def make(name: str, body: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)

    return make


CONFIG, STUDY, SWEEP = (f"configs/smoke/{name}.yaml" for name in ("quickstart", "quickstart_study", "sweep"))
MEDICAL = "configs/smoke/medical/fedavg.yaml"
NO_DATA = ("--dry-run", "--no-data-check")
SRUN = "launch/sites/slurm-openmpi.yaml"


def test_dry_run_prints_the_script_and_writes_nothing(submit: Submit, tmp_path: Path) -> None:
    done = submit(CONFIG, "--scheduler", "slurm", "--nodes", "3", "--out", tmp_path / "r", "--dry-run", "--rounds", "5")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --nodes=3" in done.stdout
    assert "quickstart.yaml --rounds 5 --out" in done.stdout
    assert not (tmp_path / "r").exists()


def test_the_script_is_kept_in_the_run_directory_and_handed_in(submit: Submit, tool: Tool, tmp_path: Path) -> None:
    for scheduler, name in [("slurm", "sbatch"), ("lsf", "bsub")]:
        tool(name, f'head -c 11 "${{1:-/dev/stdin}}" | tr -d "\\n"; echo " by {name}"')
        done = submit(CONFIG, "--scheduler", scheduler, "--out", tmp_path / scheduler)
        assert done.returncode == 0, done.stderr
        assert f"#!/bin/bash by {name}" in done.stdout
        assert os.access(tmp_path / scheduler / "job.sh", os.X_OK)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((CONFIG, "--scheduler", "slurm", "--rounds", "many"), "rounds must be an integer"),
        ((CONFIG, "--scheduler", "slurm", "--time", "90"), "--time"),
        ((CONFIG, "--scheduler", "slurm", "--time", "0:00:00"), "--time"),
        ((CONFIG, "--scheduler", "slurm", "--stage"), "data.root"),
        ((CONFIG, "--scheduler", "slurm", "--array", "3"), "--array"),
        ((CONFIG, "--scheduler", "slurm", "--mode", "study", "--arrayy", "3"), "arrayy"),
        ((CONFIG, "--scheduler", "slurm", "--mode", "sweep"), "this is a run"),
        ((STUDY, "--scheduler", "slurm", "--mode", "run"), "this is a study"),
        ((STUDY, "--scheduler", "slurm", "--local.lrr", "1"), "local.lrr"),
        ((STUDY, "--scheduler", "slurm", "--array", "-3"), "--array"),
        ((SWEEP, "--scheduler", "slurm", "--sweep.steps", "few"), "sweep.steps"),
        ((SWEEP, "--scheduler", "slurm", "--stage"), "embedded"),
        ((CONFIG, "--scheduler", "slurm", "--gpus-per-node", "-1"), "--gpus-per-node"),
        ((CONFIG, "--scheduler", "slurm", "--data.root", "nowhere"), "data.root nowhere: no such folder"),
        (("configs/federated/hem/study.yaml", "--scheduler", "slurm", "--data.root", "nowhere"), "--no-data-check"),
        ((CONFIG, "--scheduler", "slurm", "--partition.classes_per_client", "20"), "classes_per_client"),
        ((STUDY, "--scheduler", "slurm", "--partition.clients", "100000"), "partition"),
        ((SWEEP, "--scheduler", "slurm", "--sweep.datasets", "{pacs: nowhere}"), "sweep.datasets.pacs nowhere"),
        ((MEDICAL, "--scheduler", "slurm", "--scenario.clients", "5000"), "scenario"),
        ((CONFIG, "--scheduler", "flux", "--on_rank_loss", "continue"), "needs Open MPI's mpirun"),
        ((CONFIG, "--scheduler", "slurm", "--site", "nowhere.yaml"), "nowhere.yaml"),
        ((CONFIG, "--scheduler", "slurm", "--out", "a$b"), "cannot hold"),
        (("nowhere.yaml", "--scheduler", "pbs"), "nowhere.yaml"),
    ],
)
def test_errors_show_before_anything_waits_in_a_queue(submit: Submit, args: tuple[str, ...], words: str) -> None:
    done = submit(*args, "--dry-run")
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("config", "mode"), [(CONFIG, "run"), (STUDY, "study"), (SWEEP, "sweep")])
def test_the_file_says_what_the_job_is(submit: Submit, config: str, mode: str, tmp_path: Path) -> None:
    done = submit(config, "--scheduler", "slurm", "--out", tmp_path / "r", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert f"command=(fedhpc {mode} {REPOSITORY / config} " in done.stdout


@pytest.mark.parametrize("config", [CONFIG, STUDY])
def test_survivors_go_on_also_where_the_site_names_srun(submit: Submit, config: str, tmp_path: Path) -> None:
    words = ["--site", SRUN, "--on_rank_loss", "continue", "--out", tmp_path / "r", "--dry-run"]
    done = submit(config, "--scheduler", "slurm", *words)
    assert done.returncode == 0, done.stderr
    assert "--with-ft ulfm" in done.stdout
    assert "mpirun instead of srun" in done.stderr


@pytest.mark.parametrize(
    ("config", "place", "words"),
    [(CONFIG, "", ("--local.lr", "0.3")), (STUDY, "fedavg-seed0", ("--rounds", "77"))],
)
def test_a_directory_of_another_configuration_is_refused(
    submit: Submit, config: str, place: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    """The same configuration goes on; harmless keys may differ."""
    planned = {p.name: p.config for p in plan_study([config], [], load_run)} if place else {"": load_run(config)}
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "config.yaml").write_text(planned[place].to_yaml())
    shape = (config, "--scheduler", "slurm", "--out", tmp_path, "--dry-run")
    assert submit(*shape, "--checkpoint.every", "7").returncode == 0
    done = submit(*shape, *words)
    assert done.returncode == 2
    assert f"holds a run of another configuration ({words[0][2:]}" in done.stderr
    (tmp_path / "plan.json").write_text("{}")
    assert f"{tmp_path}: holds a " in submit(*shape).stderr


def test_a_job_is_checked_without_torch_and_mpi(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from fedhpc.cli import main\n"
        f"for config in {(CONFIG, STUDY, SWEEP, MEDICAL)}:\n"
        "    try: main(['submit', config, '--scheduler', 'slurm', '--dry-run'])\n"
        "    except SystemExit as end: print('code', end.code)\n"
        "print('loaded', sorted({'torch', 'mpi4py'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    told = [line for line in shown.stdout.splitlines() if line.startswith(("code ", "loaded "))]
    assert told == [*["code 0"] * 4, "loaded []"], shown.stderr


def test_words_of_the_command_line_reach_the_job_as_they_are(submit: Submit, tmp_path: Path) -> None:
    done = submit(CONFIG, "--scheduler", "slurm", *NO_DATA, "--data.root", "a b$(rm -rf .)", "--data.dataset", "mnist")
    assert "--data.root 'a b$(rm -rf .)'" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("config", "words", "expected"),
    [
        ("configs/federated/hem/fedavg.yaml", (), ['--data.root "${data[0]:-%/data/cifar10}"']),
        ("configs/federated/hem/study.yaml", (), ['--data.root "${data[0]:-%/data/cifar10}"']),
        (
            "configs/sweep/domainbed_pacs.yaml",
            ("--sweep.datasets", "{pacs: a/pacs, vlcs: b/vlcs}"),
            ['--sweep.datasets.pacs "${data[0]:-%/a/pacs}"', '--sweep.datasets.vlcs "${data[1]:-%/b/vlcs}"'],
        ),
    ],
)
def test_every_mode_stages_its_data(
    submit: Submit, config: str, words: tuple[str, ...], expected: list[str], tmp_path: Path
) -> None:
    done = submit(config, "--scheduler", "slurm", "--stage", "--out", tmp_path / "r", *NO_DATA, *words)
    assert done.returncode == 0, done.stderr
    assert all(text.replace("%", str(REPOSITORY)) in done.stdout for text in expected), done.stdout
    assert f"| tail -n {len(expected)})" in done.stdout


def test_a_study_of_several_folders_is_not_staged(submit: Submit, tmp_path: Path) -> None:
    for name in "ab":
        text = (REPOSITORY / "configs/federated/hem/fedavg.yaml").read_text()
        (tmp_path / f"{name}.yaml").write_text(text.replace("root: data/cifar10", f"root: data/{name}"))
    (tmp_path / "study.yaml").write_text("runs: [a.yaml, b.yaml]\n")
    done = submit(tmp_path / "study.yaml", "--scheduler", "slurm", "--stage", "--dry-run")
    assert done.returncode == 2
    assert "different folders (data/a, data/b)" in done.stderr


def test_flux_which_has_no_arrays_gets_the_script_once_for_each_job(submit: Submit, tool: Tool, tmp_path: Path) -> None:
    tool("flux", 'echo "$1 by flux"')
    done = submit(SWEEP, "--scheduler", "flux", "--array", "3", "--out", tmp_path / "r")
    assert done.stdout.count("batch by flux") == 3, done.stderr


def test_a_scheduler_that_does_not_answer_is_named(
    submit: Submit, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("qsub", "exec sleep 20")
    monkeypatch.setattr(command, "_PATIENCE", 0.2)
    done = submit(CONFIG, "--scheduler", "pbs", "--out", tmp_path / "r")
    assert done.returncode == 1
    assert "qsub did not answer" in done.stderr
    assert (tmp_path / "r" / "job.sh").exists()
