"""From run directories to plain figures: what is there is read, what is missing stays None, what is damaged is said."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedhpc.config import read_yaml
from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.report._hem_measures import SLACK
from fedhpc.report.plain import at, first, integer, number, text
from fedhpc.report.run_facts import DataFacts, data_facts
from fedhpc.report.tally import Collective, Evaluation, Tally
from fedhpc.runs.records import read_records

CONFIG, DONE, METRICS, ENVIRONMENT = "config.yaml", "done", "metrics.jsonl", "environment.json"
_PLAN, _FOREIGN = "plan.json", "results.jsonl"
"""What sweeps have: ours, and each run of DomainBed's (see `report.trial_files` and `report.original`)."""
STUDY = "study.json"
"""What a study has: see `report.studies`."""
_DEPTH = 2

Status = Literal["finished", "unfinished", "damaged"]


@dataclass(frozen=True)
class RunSummary:
    """One run as a report shows it. Accuracies are fractions, times seconds; None is "not known".

    Attributes:
        name: unique among the runs of one report.
        directory: where the run lies.
        status: `finished` (it has `done`), `unfinished`, or `damaged` (see `problems`).
        problems: what is wrong with the directory, one line each.
        algorithm, objective, model, dataset, partition, seed: from config.yaml; of a personalised run the method
            stands for the objective, of a medical run recipe and kind of scenario for objective and partition.
        clients: how many clients were evaluated, else how many config.yaml asks for.
        ranks: MPI ranks, from environment.json.
        rounds: rounds done.
        rounds_planned: rounds at most.
        evaluated_model: which model the accuracies belong to.
        evaluations: all evaluations of that model, by round.
        final_client_accuracy: mean over the clients at the end, or so far.
        target_accuracy: where the run stops.
        time_to_accuracy: round and seconds of the first evaluation at the target; None if it was not reached.
        seconds_train, seconds_evaluate, seconds_per_round: the clocks (a round's training, mean over rounds).
        imbalance: slowest rank over mean rank, mean over rounds.
        waiting_share: share of the ranks' time without a client to train, mean over rounds.
        wait_share, communicate_share: what root waited for other ranks, and stood in collectives, as shares of the
            rounds' time.
        read_share: what reading samples took of the loop of rounds, on the node where that was most.
        bytes_moved: root's, sum over rounds.
        collectives: what each node did in each kind of collective.
        diverged: how often a client's update was skipped.
        weights_sha256: of the final weights.
        lr: of local training.
        test_envs: numbers of the environments that are held out.
        test_samples: of all clients.
        data_digest: tells the data from others of the name.
        settings: the content of config.yaml.
    """

    name: str
    directory: str
    status: Status
    problems: tuple[str, ...] = ()
    algorithm: str | None = None
    objective: str | None = None
    model: str | None = None
    dataset: str | None = None
    partition: str | None = None
    seed: int | None = None
    clients: int | None = None
    ranks: int | None = None
    rounds: int | None = None
    rounds_planned: int | None = None
    evaluated_model: str | None = None
    evaluations: tuple[Evaluation, ...] = ()
    final_client_accuracy: float | None = None
    target_accuracy: float | None = None
    time_to_accuracy: Mapping[str, Any] | None = None
    seconds_train: float | None = None
    seconds_evaluate: float | None = None
    seconds_per_round: float | None = None
    imbalance: float | None = None
    waiting_share: float | None = None
    wait_share: float | None = None
    communicate_share: float | None = None
    read_share: float | None = None
    bytes_moved: float | None = None
    collectives: tuple[Collective, ...] = ()
    diverged: int | None = None
    weights_sha256: str | None = None
    lr: float | None = None
    test_envs: tuple[int, ...] = ()
    test_samples: int | None = None
    data_digest: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def final(self) -> Evaluation | None:
        """The last evaluation."""
        return self.evaluations[-1] if self.evaluations else None


def find_runs(directories: Sequence[Path]) -> list[Path]:
    """The run directories among and (two levels) below the given ones, in order, each once.

    Raises:
        ConfigError: a directory does not exist or holds no run.
    """
    found: dict[Path, Path] = {}
    for directory in directories:
        if not directory.is_dir():
            raise ConfigError(f"{directory}: {'is not a directory' if directory.exists() else 'no such directory'}")
        runs = list(_runs_in(directory, _DEPTH))
        if not runs:
            raise ConfigError(
                f"{directory}: holds no run (a run directory has {CONFIG}, {METRICS} and, at the end, {DONE})"
                f"{_else_in(directory)}"
            )
        for run in runs:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _else_in(directory: Path) -> str:
    """Words about a study that has not begun, or the sweeps in a directory, ours and DomainBed's; else none."""
    if (directory / STUDY).is_file():
        return "; it is a study of which no run has begun"
    found = [p for p in sorted(directory.iterdir()) if (p / _PLAN).is_file() or any(p.glob(f"*/{_FOREIGN}"))]
    return f"; of sweeps, report on one at a time: {', '.join(map(str, found))}" if found else ""


def _runs_in(directory: Path, depth: int) -> Iterator[Path]:
    if (directory / _FOREIGN).is_file():
        return
    if any((directory / name).is_file() for name in (CONFIG, METRICS, DONE)):
        yield directory
    elif depth > 0:
        try:
            below = sorted((p for p in directory.iterdir() if p.is_dir() and p.name[0] != "."), key=_natural)
        except OSError as error:
            raise FedhpcError(f"{directory}: cannot be read: {error.strerror}") from None
        for path in below:
            yield from _runs_in(path, depth - 1)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort key under which `seed2` comes before `seed10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", path.name)]


def collect(runs: Sequence[Path]) -> list[RunSummary]:
    """Read runs; their names are their paths below the directory that they have in common."""
    return [read_run(run, name) for run, name in zip(runs, _names(runs), strict=True)]


def _names(runs: Sequence[Path]) -> list[str]:
    places = [run.resolve() for run in runs]
    common = os.path.commonpath([place.parent for place in places]) if places else ""
    return [os.path.relpath(place, common) for place in places]


def read_run(directory: Path, name: str | None = None) -> RunSummary:
    """Read one run directory; nothing in it can make this fail, it makes the run `damaged`."""
    problems: list[str] = []
    config = _config(directory, problems)
    done = _json(directory / DONE, problems)
    environment = _json(directory / ENVIRONMENT, problems)
    tally = _tally(directory / METRICS, done, problems)
    model = _chosen_model(text(config, "evaluate", "model"), tally)
    evaluations = tally.evaluations(model)
    target = number(config, "evaluate", "target_accuracy")
    clients = len(tally.clients) or integer(config, "partition", "clients")
    ranks = environment.get("ranks") if environment else None
    ended, facts = done or {}, data_facts(directory)
    return RunSummary(
        name=name or directory.resolve().name,
        directory=str(directory),
        status="damaged" if problems else "unfinished" if done is None else "finished",
        problems=tuple(problems),
        clients=clients,
        ranks=len(ranks) if isinstance(ranks, list) else None,
        rounds=first(integer(ended, "rounds"), tally.rounds),
        rounds_planned=_rounds_planned(config, facts),
        evaluated_model=model,
        evaluations=evaluations,
        final_client_accuracy=first(
            number(ended, "final_client_accuracy"), evaluations[-1].mean if evaluations else None
        ),
        time_to_accuracy=_time_to_accuracy(ended, evaluations, target),
        seconds_train=first(number(ended, "seconds_train"), tally.seconds),
        seconds_evaluate=first(number(ended, "seconds_evaluate"), tally.total("evaluate_seconds")),
        seconds_per_round=tally.mean("round_seconds"),
        imbalance=tally.mean("imbalance"),
        waiting_share=tally.mean("waiting_share"),
        wait_share=tally.share("wait_seconds", "round_seconds"),
        communicate_share=tally.share("communicate_seconds", "round_seconds"),
        read_share=tally.read_share(),
        bytes_moved=tally.total("bytes_moved"),
        collectives=tally.collectives(),
        diverged=int(tally.total("diverged") or 0) if tally.rounds is not None else None,
        weights_sha256=text(ended, "weights_sha256"),
        test_samples=facts.test_samples,
        data_digest=facts.digest,
        **_asked(config),
    )


def _asked(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the configuration alone says."""
    return {
        "algorithm": text(config, "algorithm", "name"),
        "objective": _objective(config),
        "model": text(config, "model", "name"),
        "dataset": text(config, "data", "dataset"),
        "partition": first(text(config, "partition", "kind"), text(config, "scenario", "kind")),
        "seed": integer(config, "seed"),
        "target_accuracy": number(config, "evaluate", "target_accuracy"),
        "lr": number(config, "local", "lr"),
        "test_envs": _test_envs(config),
        "settings": config,
    }


def _objective(config: Mapping[str, Any]) -> str | None:
    """What clients minimise: a recipe or a personalisation brings its own."""
    recipe, method = text(config, "recipe", "name"), text(config, "personalize", "method")
    return first(recipe, text(config, "local", "objective") if method in (None, "none") else method)


def _test_envs(config: Mapping[str, Any]) -> tuple[int, ...]:
    found = at(config, "generalize", "test_envs")
    return tuple(env for env in found if isinstance(env, int)) if isinstance(found, list) else ()


def _rounds_planned(config: Mapping[str, Any], facts: DataFacts) -> int | None:
    """All rounds; what a medical run's configuration says are those of each task."""
    rounds = integer(config, "rounds")
    if rounds is None or "scenario" not in config:
        return rounds
    tasks = first(facts.tasks, integer(config, "scenario", "tasks"))
    return rounds * tasks if tasks else None


def _tally(path: Path, done: Mapping[str, Any] | None, problems: list[str]) -> Tally:
    tally = Tally()
    try:
        for record in read_records(path):
            tally.add(record)
    except FedhpcError as error:
        if done is not None or path.exists():
            problems.append(str(error))
        return tally
    rounds = integer(done or {}, "rounds")
    if rounds is not None and rounds != tally.rounds:
        problems.append(f"{path}: ends at round {tally.rounds}, {DONE} says {rounds}")
    return tally


def _chosen_model(configured: str | None, tally: Tally) -> str | None:
    """The configured model where it was evaluated, else the one that was."""
    return configured if configured in tally.figures or not tally.figures else next(iter(tally.figures))


def _time_to_accuracy(
    done: Mapping[str, Any], evaluations: Iterable[Evaluation], target: float | None
) -> Mapping[str, Any] | None:
    if "time_to_accuracy" in done:
        given = done["time_to_accuracy"]
        return {k: given.get(k) for k in ("round", "seconds")} if isinstance(given, dict) else None
    for evaluation in evaluations if target is not None else ():
        if evaluation.mean is not None and target is not None and evaluation.mean + SLACK >= target:
            return {"round": evaluation.round, "seconds": evaluation.seconds}
    return None


def _config(directory: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return read_yaml(str(directory / CONFIG))
    except ConfigError as error:
        problems.append(str(error))
        return {}


def _json(path: Path, problems: list[str]) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror}")
        return {}
    except (ValueError, RecursionError):
        problems.append(f"{path}: is not JSON")
        return {}
    if not isinstance(found, dict):
        problems.append(f"{path}: is not a JSON object")
        return {}
    return found
