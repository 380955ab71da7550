"""Rendered scripts run by bash, with small programs in the places of launcher and scheduler."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedhpc.launch import Site, render
from tests.launch.cases import BASE

ENDS = "date +%FT%T -d @$NOW_ENDS"
SAVED = "checkpoints/round-00000009"


Stage = tuple[tuple[str, str], ...]


class Played:
    """A rendered Slurm script run by bash, with small programs in the places of srun, scontrol and sbatch."""

    def __init__(
        self, folder: Path, ranks: str, mode: str = "run", setup: str = ":", stage: Stage = (), **variables: str
    ) -> None:
        self.out, self.log = folder / "out dir", folder / "log"
        self.log.touch()
        tools = folder / "bin"
        tools.mkdir()
        for name, body in {
            "srun": ranks,
            "scontrol": 'exit "${NO_REQUEUE:-0}"',
            "sbatch": "exit 0",
            "squeue": f'until [ -z "${{FIRST:-}}" ] || [ -e "$out/$FIRST" ]; do sleep 0.02; done; {ENDS}',
        }.items():
            file = tools / name
            known = f'out="{self.out}"\nexit_file="${{@: -1}}"\n'
            file.write_text(f'#!/bin/bash\n{known}echo "{name} $*" >>"{self.log}"\n{body}\n')
            file.chmod(0o755)
        site = Site(setup=[f'export PATH="{tools}:$PATH"', setup])
        job = replace(BASE, out=str(self.out), directory=str(folder), site=site, stage=stage)
        if mode != "run":
            job = replace(job, mode=mode, command=(mode, "c.yaml"))
        script = folder / "job.sh"
        script.write_text(re.sub(r"sleep (2|5|60)\b", "sleep 0.1", render(job)))
        env = {**os.environ, "SLURM_JOB_ID": "7", **variables}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen(["bash", script], env=env, start_new_session=True, **streams)

    def end(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=20)
        return self.process.returncode, said

    def wait_for(self, name: str) -> None:
        end = time.monotonic() + 10
        while not (self.out / name).exists():
            assert time.monotonic() < end
            time.sleep(0.02)

    @property
    def handed_in_again(self) -> bool:
        return "scontrol requeue 7" in self.log.read_text()


SAVE = f'mkdir -p "$out/{SAVED}"'


@pytest.mark.parametrize(
    ("ranks", "code", "again"),
    [
        ('touch "$out/done"', 0, False),
        ('touch "$out/done"; exit 137', 0, False),
        ("exit 0", 1, False),
        ("exit 1", 1, False),
        ("exit 2", 2, False),
        (f"{SAVE}; exit 75", 0, True),
        (f"{SAVE}; exit 137", 0, True),
        (f"{SAVE}; exit 0", 0, True),
        (f"{SAVE}; exit 2", 2, False),
        ("exit 75", 1, False),
    ],
)
def test_a_job_is_handed_in_again_only_where_that_leads_somewhere(
    ranks: str, code: int, again: bool, tmp_path: Path
) -> None:
    played = Played(tmp_path, ranks)
    assert played.end()[0] == code
    assert played.handed_in_again is again


TOLD = 'echo {} >"$exit_file"'
TRIAL = 'mkdir -p "$out/queue"; touch "$out/queue/a.done"'
ROUND = 'mkdir -p "$out/a-seed0/checkpoints/round-00000009"'


@pytest.mark.parametrize(
    ("mode", "ranks", "code", "again"),
    [
        ("sweep", TOLD.format(0), 0, False),
        ("sweep", f"{TOLD.format(0)}; exit 137", 0, False),
        ("sweep", f"{TRIAL}; {TOLD.format(1)}; exit 1", 1, False),
        ("sweep", "exit 0", 1, False),
        ("sweep", f"{TRIAL}; exit 0", 0, True),
        ("sweep", f"{TRIAL}; exit 137", 0, True),
        ("sweep", "exit 137", 137, False),
        ("sweep", "exit 75", 0, True),
        ("sweep", f"{TRIAL}; exit 2", 2, False),
        ("study", TOLD.format(0), 0, False),
        ("study", f"{ROUND}; {TOLD.format(1)}; exit 1", 1, False),
        ("study", "exit 0", 1, False),
        ("study", f"{ROUND}; exit 0", 0, True),
        ("study", f"{ROUND}; exit 137", 0, True),
        ("study", f"{ROUND}; exit 75", 0, True),
    ],
)
def test_what_many_jobs_may_share_goes_by_what_each_job_tells(
    mode: str, ranks: str, code: int, again: bool, tmp_path: Path
) -> None:
    """A launcher that lost its daemon may end with 0; others may have finished meanwhile."""
    played = Played(tmp_path, ranks, mode)
    assert played.end()[0] == code
    assert played.handed_in_again is again


def test_set_up_lines_may_read_variables_that_nobody_set_and_the_script_may_not(tmp_path: Path) -> None:
    """So do the hooks of conda, Spack and modules."""
    played = Played(tmp_path, 'touch "$out/done"', setup=': "$NOBODY_SET_THIS"; [ -z "$NOR_THIS" ]')
    code, said = played.end()
    assert code == 0, said
    lines = (tmp_path / "job.sh").read_text().splitlines()
    start = lines.index("set +u  # what a site loads may read variables that nobody set")
    assert start < next(i for i, line in enumerate(lines) if "NOBODY" in line) < lines.index("set -u", start)


@pytest.mark.parametrize("array", [{}, {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}])
def test_a_member_of_an_array_speaks_of_itself_and_not_of_all(array: dict[str, str], tmp_path: Path) -> None:
    """The number of one member is that of the array: Slurm would requeue, list and wait for all of them."""
    ends = {"SLURM_JOB_END_TIME": str(int(time.time()) + 6), "NOW_ENDS": str(int(time.time()) + 6)}
    played = Played(tmp_path, f"{SAVE}; exec sleep 15", NO_REQUEUE="1", FIRST=SAVED, **ends, **array)
    assert played.end()[0] == 0
    me = "7_3" if array else "7"
    said = played.log.read_text()
    assert f"squeue -h -j {me} -o" in said
    assert f"scontrol requeue {me}\n" in said
    assert f"sbatch --dependency=afterany:{me} " in said


@pytest.mark.parametrize(("saves", "again"), [("rm -r {0}; mkdir {0}; ", True), ("", False)])
@pytest.mark.parametrize(("mode", "folder"), [("run", ""), ("study", "a-seed0/")])
def test_a_checkpoint_of_the_same_round_may_be_a_new_one(
    mode: str, folder: str, saves: str, again: bool, tmp_path: Path
) -> None:
    """A run that goes on at a round, evaluates and stops saves that round again, now with its evaluation."""
    place = f'"$out/{folder}{SAVED}"'
    played = Played(tmp_path, f"{saves.format(place)}exit 75", mode, setup=f"mkdir -p {place}")
    assert played.end()[0] == (0 if again else 1)
    assert played.handed_in_again is again


@pytest.mark.parametrize("mode", ["study", "sweep"])
def test_what_an_earlier_job_of_the_same_name_told_is_forgotten(mode: str, tmp_path: Path) -> None:
    """Process ids come back, in containers after every restart."""
    stale = 'echo 0 >"$out/log/exit-$(hostname)-$$"'
    assert Played(tmp_path, "exit 137", mode, setup=stale).end()[0] == 137


COPY = "/local/fedhpc-1000-pacs-0123456789abcdef"


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        (["mpirun: hello", "/data/pacs", COPY], ["/data/pacs", COPY]),
        ([COPY, "/data/my vlcs"], [COPY, "/data/my vlcs"]),
        (["/data/pacs", COPY, "srun: bye"], ["/data/pacs", "/data/my vlcs"]),
        ([], ["/data/pacs", "/data/my vlcs"]),
    ],
)
def test_what_a_launcher_says_is_not_taken_for_a_folder(printed: list[str], read: list[str], tmp_path: Path) -> None:
    """Compute nodes may have folders that the script's host does not see, so their names are judged."""
    lines = " ".join(f"'{line}'" for line in printed)
    ranks = f'case "$*" in *"fedhpc stage"*) printf "%s\\n" {lines};; *) touch "$out/done";; esac'
    played = Played(tmp_path, ranks, stage=(("--a.root", "/data/pacs"), ("--b.root", "/data/my vlcs")))
    assert played.end()[0] == 0
    assert f"--a.root {read[0]} --b.root {read[1]}" in played.log.read_text()


@pytest.mark.parametrize(("number", "again"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_a_warning_reaches_the_ranks_and_a_cancelled_job_is_not_handed_in(
    number: int, again: bool, tmp_path: Path
) -> None:
    ranks = f"trap '{SAVE}; exit 75' USR1; touch \"$out/up\"; for i in $(seq 200); do sleep 0.05; done; exit 1"
    played = Played(tmp_path, ranks)
    played.wait_for("up")
    played.process.send_signal(number)
    code, said = played.end()
    assert "exit code 75" in said
    assert played.handed_in_again is again
    assert code == (0 if again else 1)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_warning_during_the_set_up_starts_no_ranks(number: int, tmp_path: Path) -> None:
    played = Played(tmp_path, f"{SAVE}; exit 75", setup='touch "$out/up"; sleep 0.5')
    played.wait_for("up")
    played.process.send_signal(number)
    code, said = played.end()
    assert (code, "not handed in again" in said) == (1, True)
    assert "srun" not in played.log.read_text()


@pytest.mark.parametrize(
    ("ranks", "left", "moved", "code", "again"),
    [
        ('touch "$out/done"; exec sleep 15', 3600, 3600, 0, False),
        (f"{SAVE}; exec sleep 15", 4, 4, 0, True),
        ("exec sleep 15", 4, 4, 137, False),
        ('sleep 0.5; touch "$out/done"', 4, 3600, 0, False),
        (f"{SAVE}; exec sleep 15", None, 7, 0, True),
        ('sleep 0.5; touch "$out/done"', None, None, 0, False),
    ],
)
def test_a_launcher_that_hangs_is_killed_in_time_and_no_other(
    ranks: str, left: int | None, moved: int | None, code: int, again: bool, tmp_path: Path
) -> None:
    now = int(time.time())
    known = {"SLURM_JOB_END_TIME": left, "NOW_ENDS": moved}  # older Slurms do not tell their jobs
    ends = {name: str(now + seconds) for name, seconds in known.items() if seconds is not None}
    waits = {"FIRST": SAVED} if SAVE in ranks and left is not None else {}
    played = Played(tmp_path, f"trap '' TERM USR1; {ranks}", **ends, **waits)
    began = time.monotonic()
    assert played.end()[0] == code
    assert time.monotonic() - began < 10
    assert played.handed_in_again is again


def test_a_warning_to_all_processes_of_the_job_leaves_the_guard_alive(tmp_path: Path) -> None:
    """Some schedulers signal the whole group; subshells do not have the script's traps."""
    ranks = 'trap \'\' USR1; touch "$out/up"; sleep 0.5; touch "$out/done"; exec sleep 15'
    played = Played(tmp_path, ranks)
    played.wait_for("up")
    os.killpg(played.process.pid, signal.SIGUSR1)
    began = time.monotonic()
    assert played.end()[0] == 0
    assert time.monotonic() - began < 10, "nobody killed the launcher that hangs"


@pytest.mark.parametrize(
    ("scheduler", "array", "said"),
    [
        ("pbs", 0, "qsub -v OUT,FEDHPC_JOB_END,FEDHPC_KEPT -W depend=afterany:7.head SCRIPT with"),
        ("pbs", 3, "qsub -v OUT,FEDHPC_JOB_END,FEDHPC_KEPT -J 2-3:2 SCRIPT with"),
        ("lsf", 0, None),
        ("flux", 0, "flux --parent batch --dependency=afterany:7.head SCRIPT with"),
    ],
)
def test_other_schedulers_get_a_job_that_stopped_again(
    scheduler: str, array: int, said: str | None, tmp_path: Path
) -> None:
    """LSF by the exit code, which its script names."""
    log, script = tmp_path / "log", tmp_path / "job.sh"
    for name, body in {
        "mpirun": "exit 75",
        "qsub": ":",
        "flux": "case $1 in run) exit 75;; getattr) echo 7.head;; esac",
    }.items():
        (tmp_path / name).write_text(f'#!/bin/bash\necho "{name} $* with $OUT" >>"{log}"\n{body}\n')
        (tmp_path / name).chmod(0o755)
    job = replace(BASE, scheduler=scheduler, mode="sweep", command=("sweep", "c.yaml"), array=array, script=str(script))
    job = replace(job, out=str(tmp_path / "out"), directory=str(tmp_path), site=Site())
    script.write_text(render(job))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FEDHPC_")}
    told = {"PBS_JOBID": "7.head", "PBS_ARRAY_INDEX": "2", "LSB_JOBID": "7", "FEDHPC_KEPT": "1", "OUT": "unset"}
    env = {**inherited, **told, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", script], env=env, capture_output=True, text=True, timeout=20)
    assert done.returncode == (75 if scheduler == "lsf" else 0), done.stderr
    again = [line for line in log.read_text().splitlines() if line.startswith(("qsub", "flux --parent"))]
    assert again == ([f"{said.replace('SCRIPT', str(script))} {job.out}"] if said else [])
