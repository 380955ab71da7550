"""The plan of a study, `study.json` in its directory: what it consists of, whether or not it was run.

Without it a report would show what is there and not know what is not. A study that grows keeps what it had planned.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedhpc
from fedhpc.errors import DIVERGES_AGAIN, FedhpcError
from fedhpc.report.collect import CONFIG, DONE, STUDY

FORMAT = 1
FAILED = "failed"
"""In the directory of a run of a study: why it failed last."""
IN_VAIN = "change what `failed` in them names in their configurations, remove the directories of all their seeds"
"""What helps runs of a study that diverged, before the same command is given again."""
_MOST_NAMED = 20


@dataclass(frozen=True)
class StudyRun:
    """A run that a study consists of.

    Attributes:
        name: its directory in the study's.
        seed: its seed.
        files: the study's file, or those of its runs, as absolute paths.
        options: words of the command that planned it.
        config: its configuration, as nested plain values.
    """

    name: str
    seed: int
    files: tuple[str, ...]
    options: tuple[str, ...]
    config: Mapping[str, Any]

    def command(self, directory: Path) -> str:
        """What runs the study that it belongs to, in a directory."""
        return shlex.join(["fedhpc", "study", *self.files, "--out", str(directory), *self.options])


def is_study(directory: Path) -> bool:
    """Whether a directory holds a study."""
    return (directory / STUDY).is_file()


def plan_text(runs: Iterable[StudyRun]) -> str:
    """The content of study.json; one line a run."""
    rows = list(runs)
    commands = list(dict.fromkeys((run.files, run.options) for run in rows))
    head = {
        "format": FORMAT,
        "fedhpc": fedhpc.__version__,
        "commands": [{"files": files, "options": options} for files, options in commands],
    }
    lines = [
        json.dumps(
            {
                "name": run.name,
                "seed": run.seed,
                "command": commands.index((run.files, run.options)),
                "config": run.config,
            }
        )
        for run in rows
    ]
    return f'{json.dumps(head)[:-1]}, "runs": [\n' + ",\n".join(lines) + "\n]}\n"


def read_plan(directory: Path) -> dict[str, StudyRun]:
    """What a study consists of, by name.

    Raises:
        FedhpcError: its plan cannot be read.
    """
    path = directory / STUDY
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise FedhpcError(f"{path}: has format {found['format']}, this version reads {FORMAT}")
        return {run.name: run for run in (_run(row, found["commands"]) for row in found["runs"])}
    except FedhpcError:
        raise
    except OSError as error:
        raise FedhpcError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise FedhpcError(f"{path}: is no plan of a study ({error}); remove it and start the study again") from None


def _run(row: Mapping[str, Any], commands: Sequence[Mapping[str, Any]]) -> StudyRun:
    command = commands[row["command"]]
    files, options = tuple(map(str, command["files"])), tuple(map(str, command["options"]))
    return StudyRun(str(row["name"]), int(row["seed"]), files, options, dict(row["config"]))


@dataclass(frozen=True)
class OpenRun:
    """A planned run that is not finished.

    Attributes:
        run: as it was planned.
        place: its directory, which need not be there.
        begun: whether that holds a run.
        command: what runs it.
        why: why it failed last; empty if it did not.
    """

    run: StudyRun
    place: Path
    begun: bool
    command: str
    why: str = ""

    @property
    def state(self) -> str:
        """In words."""
        return f"failed: {self.why}" if self.why else "unfinished" if self.begun else "not begun"

    @property
    def diverged(self) -> bool:
        """Whether going on with it is in vain."""
        return diverged(self.why)


def studies_in(directories: Sequence[Path]) -> list[Path]:
    """The studies among some directories and right below them, each once."""
    found: dict[Path, Path] = {}
    for directory in directories:
        for path in (directory, *sorted(directory.iterdir() if directory.is_dir() else ())):
            if is_study(path):
                found.setdefault(path.resolve(), path)
    return list(found.values())


def open_runs(study: Path) -> list[OpenRun]:
    """What is planned and not finished, in the order of the plan.

    Raises:
        FedhpcError: the plan cannot be read.
    """
    found = []
    for run in read_plan(study).values():
        place = study / run.name
        if not (place / DONE).exists():
            found.append(OpenRun(run, place, (place / CONFIG).exists(), run.command(study), why_failed(place)))
    return found


def diverged(why: str) -> bool:
    """Whether a run that failed so would end so again."""
    return DIVERGES_AGAIN in why


def why_failed(place: Path) -> str:
    """Why a run of a study failed last; empty if it did not."""
    try:
        return (place / FAILED).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def resume_command(place: Path) -> str:
    """What goes on with the run of a directory, from the configuration that it keeps, behind any launcher."""
    return f"fedhpc run {shlex.quote(str(place / CONFIG))} --out {shlex.quote(str(place))} --resume"


def unfinished(place: Path) -> str:
    """What became of a run without an end, and what goes on with it; one that diverged would do so again."""
    why = why_failed(place).partition("\n")[0]
    goes_on = f"go on with: {resume_command(place)}"
    if not why:
        return f"is not finished; if nothing runs there, {goes_on}"
    return f"failed: {why}" if "--resume" in why else f"failed: {why}; {goes_on}"


def absent_runs(directories: Sequence[Path]) -> Iterator[OpenRun]:
    """Planned runs of the studies in some directories that were not begun; those of damaged plans are unknown."""
    for study in studies_in(directories):
        try:
            yield from (run for run in open_runs(study) if not run.begun)
        except FedhpcError:
            continue  # `study_notes` tells


def study_notes(directories: Sequence[Path]) -> list[str]:
    """A line for each command that is needed to finish the studies in some directories, with the runs it is for."""
    notes = []
    for study in studies_in(directories):
        try:
            found, count = open_runs(study), len(read_plan(study))
        except FedhpcError as error:
            notes.append(f"which runs are missing is not known: {error}")
            continue
        for command, in_vain in dict.fromkeys((run.command, run.diverged) for run in found):
            same = [run for run in found if (run.command, run.diverged) == (command, in_vain)]
            what = f"{study}: {len(same)} of {count} planned runs"
            if in_vain:
                notes.append(f"{what} diverged: {_named(same)}; {IN_VAIN}, and run: {command}")
            else:
                notes.append(f"{what} are not finished: {_named(same)}; go on with: {command}")
    return notes


def _named(runs: Sequence[OpenRun]) -> str:
    """Names, each with what is known; the remedy is said once, behind all of them."""
    said = [f"{r.run.name} ({r.why.partition(' (')[0] if r.diverged else r.state})" for r in runs[:_MOST_NAMED]]
    more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    return ", ".join(said) + more


def with_notes(summary: str, notes: Sequence[str]) -> str:
    """A JSON object as text, with more lines under its key `notes`."""
    tree = json.loads(summary)
    tree["notes"] = [*tree.get("notes", ()), *notes]
    return json.dumps(tree, indent=1, allow_nan=False) + "\n"
