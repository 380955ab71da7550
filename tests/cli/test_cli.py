"""The command line: usage, exit codes, and one message per mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedhpc
from fedhpc import registry
from tests.cli.commands import fedhpc_
from tests.conftest import REPOSITORY
from tests.mpi import launcher


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "COMMAND"),
        (["runn"], "no command 'runn' (did you mean 'run'?)"),
        (["--nonsense"], "COMMAND"),
        (["run"], "CONFIG"),
        (["list", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["list", "modles"], "no kind 'modles' (did you mean 'models'?)"),
        (["run", "no/such/file.yaml"], "no/such/file.yaml"),
        (["prepare"], "--verify DIR"),
        (["study", "x.yaml", "--out", "x", "--resum"], "unknown option --resum (did you mean '--resume'?)"),
        (["run", "configs/smoke/fedavg.yaml", "--bogus"], "unknown option '--bogus'"),
        (["run", "configs/smoke/quickstart_study.yaml"], "this is a study: fedhpc study"),
        (["sweep", "configs/smoke/fedavg.yaml", "--out", "x"], "this is a run: fedhpc run configs/smoke/fedavg.yaml"),
        (["sweep", "configs/smoke/quickstart_study.yaml", "--out", "x", "--status"], "this is a study: fedhpc study"),
        (["run", "configs/smoke/fedavg.yaml", "--recipe", "cb"], "recipe is a key of medical runs"),
        (["run", "configs/smoke/fedavg.yaml", "--scenario.kind=localized"], "scenario is a key of medical runs"),
        (["run", "configs/smoke/medical/cb.yaml", "--partition.clients", "4"], "partition has no place in a medical"),
        (["study", "no/such.yaml", "--resume", "--out", "x"], "no/such.yaml: no such configuration file"),
        (["sweep", "no/such.yaml", "--resume"], "no/such.yaml: no such configuration file"),
    ],
)
def test_bad_usage_is_exit_code_2_and_says_what_is_wrong(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedhpc_(*words) == 2
    shown = capsys.readouterr()
    assert named in shown.err
    assert "Traceback" not in shown.err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert fedhpc_("--version") == 0
    assert capsys.readouterr().out.strip() == f"fedhpc {fedhpc.__version__}"
    assert fedhpc_("--help") == 0
    shown = capsys.readouterr().out
    assert "75" in shown
    assert all(name in shown for name in registry.names("fedhpc.commands"))


@pytest.mark.parametrize("command", registry.names("fedhpc.commands"))
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedhpc_(command, "--help") == 0
    shown = capsys.readouterr().out
    assert "example" in shown
    assert f"fedhpc {command}" in shown


def test_list_names_every_plug_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert fedhpc_("list") == 0
    assert "algorithms: " in capsys.readouterr().out
    assert fedhpc_("list", "algorithms") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in registry.names("fedhpc.federated.algorithms"))
    assert "alpha=0.01" in shown


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("keys", "concentration; 0.1 is strong skew, 100 is nearly iid [dirichlet]"),
        ("medical_keys", "attributes whose combinations are the groups"),
        ("study_keys", "a mapping whose values are a list, default {}; dotted keys and"),
        ("sweep_keys", "hyperparameter draws; the first are the defaults"),
    ],
)
def test_list_says_what_keys_mean(kind: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedhpc_("list", kind) == 0
    shown = capsys.readouterr().out
    assert said in shown
    assert len(shown.splitlines()) == len(set(shown.splitlines()))
    bare = [line for line in shown.splitlines() if "; " not in line]
    assert all(line.split()[0].endswith((".name", ".kind")) for line in bare), "every other key has a meaning"
    assert ("partition.kind" in shown) == (kind == "keys")


def test_cheap_commands_need_neither_torch_nor_mpi() -> None:
    code = (
        "import sys; sys.modules['mpi4py'] = sys.modules['torch'] = None\n"
        "from fedhpc.cli import main\n"
        "for words in (['list'], ['list', 'medical_keys'], ['run', '--help'], ['run', 'no/such.yaml']):\n"
        "    try: main(words)\n"
        "    except SystemExit as end: print(end.code)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": "."})
    assert [line for line in shown.stdout.splitlines() if line.isdigit()] == ["0", "0", "0", "2"], shown.stderr


def test_a_run_does_not_load_what_takes_longer_than_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from fedhpc.cli import main\n"
        f"try: main(['run', 'configs/smoke/quickstart.yaml', '--rounds', '1', '--out', {str(tmp_path / 'run')!r}])\n"
        "except SystemExit as end: print(end.code)\n"
        "print(sorted({'torch._dynamo', 'torch._inductor', 'sklearn', 'scipy', 'torchvision'} & set(sys.modules)))"
    )
    env = {"PYTHONPATH": ".", "OMP_NUM_THREADS": "1"}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert shown.stdout.endswith("\n0\n[]\n"), shown.stdout + shown.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_is_no_error(unbuffered: str) -> None:
    """What is printed meets the closed pipe at once or, as Python has it if not asked, when the program ends."""
    shown = subprocess.run(
        f"{sys.executable} -m fedhpc list | true; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert shown.returncode == 0
    assert shown.stderr == ""


# A mistake in the configuration


@pytest.mark.parametrize(
    ("override", "named"),
    [
        (["--local.lrr", "1"], "local.lrr"),
        (["--local.lr", "fast"], "local.lr"),
        (["--local.lr", "-1"], "local.lr"),
        (["--algorithm.alpha", "1"], "alpha"),
        (["--algorithm.name", "scafold"], "scaffold"),
        (["--local.momentum", "0.9"], "algorithm.option 2 of scaffold"),
        (["--partition.clients", "100000"], "partition"),
        (["--cohort.size", "6"], "cohort.size"),
        (["--data.root", "no/such/data"], "no/such/data"),
        (["--data.transform.mean", "[1,2]", "--data.transform.std", "[1,2]"], "data.transform"),
        (["--model.weights", "no/such/weights.pt"], "no/such/weights.pt"),
        (["--model.freeze_bn", "true"], "freeze_bn"),
    ],
)
def test_a_mistake_is_named_before_anything_runs(
    config: Path, tmp_path: Path, override: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedhpc_("run", config, "--out", tmp_path / "run", *override) in (1, 2)
    shown = capsys.readouterr()
    errors = [line for line in shown.err.splitlines() if line.startswith("fedhpc: error:")]
    assert len(errors) == 1
    assert named in errors[0]
    assert "Traceback" not in shown.err
    assert not (tmp_path / "run" / "done").exists()
    # The directory is not occupied by a run that never began: the corrected command works in it.
    assert fedhpc_("run", config, "--out", tmp_path / "run", "--rounds", "1") == 0


@pytest.mark.mpi
def test_a_mistake_on_many_ranks_is_said_once_and_aborts_nothing(config: Path, tmp_path: Path) -> None:
    words = ["run", config, "--out", tmp_path / "run", "--cohort.size", "6"]
    done = launcher.mpirun(3, ["-m", "fedhpc", *words])
    assert done.returncode == 2
    assert done.stderr.count("fedhpc: error:") == 1
    assert "MPI_ABORT" not in done.stderr
    assert not list((tmp_path / "run" / "log").glob("rank-*.log"))


def test_print_config_shows_the_resolved_configuration_and_runs_nothing(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedhpc.config import load_config

    assert fedhpc_("run", config, "--local.lr", "0.05", "--out", tmp_path / "run", "--print_config") == 0
    shown = tmp_path / "shown.yaml"
    shown.write_text(capsys.readouterr().out)
    assert load_config(str(shown), []) == load_config(str(config), ["--local.lr", "0.05"])
    assert not (tmp_path / "run").exists()


def test_a_reader_that_leaves_ends_no_training(tmp_path: Path) -> None:
    config, out = REPOSITORY / "configs" / "smoke" / "fedavg.yaml", tmp_path / "run"
    command = [sys.executable, "-m", "fedhpc", "run", str(config), "--rounds", "12", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()
        assert process.wait(timeout=60) == 0, errors
    assert (out / "done").exists()
    assert "BrokenPipe" not in errors
