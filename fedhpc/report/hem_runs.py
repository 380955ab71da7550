"""Run directories as the curves of a comparison: which algorithm a run is, and whether the runs belong together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedhpc.config import diff, other_result, read_yaml
from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.report._hem_measures import Curve
from fedhpc.report.collect import CONFIG, DONE, ENVIRONMENT, METRICS, find_runs
from fedhpc.report.hem import Comparison
from fedhpc.report.run_facts import data_facts
from fedhpc.report.studies import diverged, study_notes, unfinished, why_failed
from fedhpc.runs.environment import device_kind
from fedhpc.runs.records import Record, read_records

_NAMES = {
    "fedavg": "FedAvg", "fedprox": "FedProx", "feddyn": "FedDyn", "scaffold": "SCAFFOLD", "fedavgm": "FedAvgM",
    "fedadam": "FedAdam", "fedyogi": "FedYogi", "fednova": "FedNova", "fedbn": "FedBN", "ditto": "Ditto",
    "pfedme": "pFedMe",
}  # fmt: skip
_PERSONALIZED = {"none": "", "maml": "_MAML", "proto": "_Proto"}
_SECONDS = ("round_seconds", "evaluate_seconds")
_NOT_THE_METHOD = ("rounds", "data", "evaluate")
"""Keys and sections that make another experiment of a run, but no other algorithm."""
_SAME = ("data.dataset", "partition")
_BETTER_SAME = ("data.transform", "model", "cohort", "evaluate.every", "evaluate.model", "local.batch_size")


@dataclass
class _Run:
    """One run directory, read.

    `facts` are what should be the same beside the configuration; what is not known is not there. `skipped` counts the
    client updates that diverged.
    """

    path: Path
    config: Mapping[str, Any]
    finished: bool
    facts: Mapping[str, Any]
    skipped: int = 0
    name: str = ""
    base: str | None = None
    accuracies: dict[int, dict[int, float | None]] = field(default_factory=dict)
    seconds: dict[str, dict[int, float | None]] = field(default_factory=lambda: {what: {} for what in _SECONDS})

    def at(self, key: str) -> Any:
        """A value of the configuration by its dotted key; None if it is not there."""
        found: Any = self.config
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    @property
    def label(self) -> str:
        """The algorithm's name in the paper."""
        plain = str(self.at("algorithm.name") or "?")
        method = str(self.at("personalize.method") or "none")
        return _NAMES.get(plain, plain) + _PERSONALIZED.get(method, f"_{method}")

    @property
    def base_label(self) -> str | None:
        """The same algorithm without personalisation; None if it is without."""
        name, _, method = self.label.rpartition("_")
        return name if f"_{method}" in _PERSONALIZED.values() and name else None

    @property
    def diverged(self) -> bool:
        """Whether it came to no end, and would not if it were gone on with."""
        return not self.finished and diverged(why_failed(self.path))

    @property
    def seed(self) -> int:
        """The run's seed."""
        seed = self.at("seed")
        return seed if isinstance(seed, int) else 0


def read_runs(paths: Sequence[Path], target: float | None = None, cap: int | None = None) -> Comparison:
    """Read run directories, or directories that hold them, as one comparison.

    Args:
        paths: the directories.
        target: takes the place of the runs' `evaluate.target_accuracy`.
        cap: takes the place of the runs' `rounds`.

    Raises:
        ConfigError: no runs, or runs that do not belong together.
        FedhpcError: a run is damaged.
    """
    runs = [_open(path) for path in find_runs(paths)]
    target = _agreed(runs, "evaluate.target_accuracy", "--target") if target is None else target
    cap = _agreed(runs, "rounds", "--rounds") if cap is None else cap
    for key in _SAME:
        _agreed(runs, key, None)
    _name(runs)
    for run in runs:
        _read_metrics(run)
    clients = {seed: _clients(r for r in runs if r.seed == seed) for seed in {r.seed for r in runs}}
    curves = tuple(_curve(run, clients[run.seed], cap) for run in sorted(runs, key=_order))
    return Comparison(target, cap, curves, (*_warnings(runs), *study_notes(paths)))


def _open(path: Path) -> _Run:
    done = _json(path / DONE)
    return _Run(path, read_yaml(str(path / CONFIG)), done is not None, dict(_facts(path)))


def _facts(path: Path) -> Iterator[tuple[str, Any]]:
    """Data, and what seconds depend on."""
    if (digest := data_facts(path).digest) is not None:
        yield "the content of data.root", digest[:8]
    ranks = (_json(path / ENVIRONMENT) or {}).get("ranks")
    if isinstance(ranks, list):
        yield "the number of ranks", len(ranks)
        for what, key, short in (("threads per rank", "threads", str), ("the device", "label", device_kind)):
            found = sorted({short(str(r[key])) for r in ranks if isinstance(r, Mapping) and key in r})
            if found:
                yield what, found[0] if len(found) == 1 else found


def _json(path: Path) -> Mapping[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise FedhpcError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not JSON'}") from None
    if not isinstance(found, dict):
        raise FedhpcError(f"{path}: is not a JSON object")
    return found


def _agreed(runs: Sequence[_Run], key: str, option: str | None) -> Any:
    """The value that all runs have; with an option, there must be one."""
    first = runs[0].at(key)
    for run in runs:
        if run.at(key) != first:
            remedy = f"say which counts with {option}" if option else "compare runs of one task"
            raise ConfigError(
                f"{key} differs: {_short(first)} in {runs[0].path}, {_short(run.at(key))} in {run.path}; {remedy}"
            )
    if option and first is None:
        raise ConfigError(f"{runs[0].path}: {key} is not set; set it with {option}")
    return first


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _name(runs: Sequence[_Run]) -> None:
    """Give every run its algorithm's name, with the keys that tell variants of one algorithm apart."""
    suffix = {id(run): _variant(run, [r for r in runs if r.label == run.label]) for run in runs}
    for run in runs:
        run.name = run.label + suffix[id(run)]
    names = {run.name for run in runs}
    for run in runs:
        plain = run.base_label
        candidates = (f"{plain}{suffix[id(run)]}", plain) if plain else ()
        run.base = next((c for c in candidates if c in names), None)


def _variant(run: _Run, same: Sequence[_Run]) -> str:
    keys = sorted({key for other in same for key in other_result(diff(_method(run), _method(other)))})
    shown = ", ".join(f"{key.split('.', 1)[-1]}={run.at(key)}" for key in keys)
    return f" ({shown})" if shown else ""


def _method(run: _Run) -> dict[str, Any]:
    return {key: value for key, value in run.config.items() if key not in _NOT_THE_METHOD}


def _read_metrics(run: _Run) -> None:
    model = run.at("evaluate.model")
    models: set[str | None] = set()
    by_model: dict[str | None, dict[int, dict[int, float | None]]] = {}
    for record in read_records(run.path / METRICS):
        if record.what == "client_accuracy" and record.client is not None:
            _check_share(run, record)
            models.add(record.model)
            by_model.setdefault(record.model, {}).setdefault(record.round, {})[record.client] = record.value
        elif record.what in _SECONDS:
            run.seconds[record.what][record.round] = record.value
        elif record.what == "diverged":
            run.skipped += 1
    if not by_model:
        raise FedhpcError(f"{run.path / METRICS}: has no client accuracies yet; let the run get to an evaluation")
    if model not in models and len(models) > 1:
        raise FedhpcError(f"{run.path}: {CONFIG} says the evaluated model is {model}, the records have others")
    run.accuracies = by_model[model if model in models else models.pop()]


def _check_share(run: _Run, record: Record) -> None:
    if record.value is not None and not 0 <= record.value <= 1:
        raise FedhpcError(
            f"{run.path / METRICS}: accuracy of client {record.client} in round {record.round} must be a fraction in "
            f"[0, 1], got {record.value:g}"
        )


def _clients(runs: Iterator[_Run]) -> list[int]:
    """Every client that any run of one seed has: one without test data is in none of them."""
    return sorted({client for run in runs for moment in run.accuracies.values() for client in moment})


def _curve(run: _Run, clients: Sequence[int], cap: int) -> Curve:
    rounds = sorted(run.accuracies)
    if rounds[0] > cap:
        raise ConfigError(f"{run.path}: its first evaluation is of round {rounds[0]}, beyond the cap of {cap} rounds")
    trained = max([*run.seconds["round_seconds"], rounds[-1], 0])
    train, evaluate = (run.seconds[what] for what in _SECONDS)
    return Curve(
        run.name,
        run.base,
        tuple(rounds),
        tuple(tuple(run.accuracies[r].get(c) for c in clients) for r in rounds),
        tuple(_required(run, train.get(r), r) for r in range(1, trained + 1)),
        tuple(evaluate.get(r) or 0.0 for r in range(1, trained + 1)),
        run.seed,
        finished=run.finished or run.diverged,
        diverged=run.diverged,
    )


def _required(run: _Run, seconds: float | None, round: int) -> float:
    if seconds is None or seconds < 0:
        raise FedhpcError(f"{run.path / METRICS}: has no round_seconds of round {round}; the file is damaged")
    return seconds


def _order(run: _Run) -> tuple[int, str, int, str, int]:
    """The paper's order: by algorithm, plain before personalised."""
    plain = str(run.at("algorithm.name"))
    method = str(run.at("personalize.method") or "none")
    known, methods = ["fedavg", "feddyn", "scaffold"], list(_PERSONALIZED)
    return (
        known.index(plain) if plain in known else len(known),
        plain,
        methods.index(method) if method in methods else len(methods),
        run.name,
        run.seed,
    )


def _warnings(runs: Sequence[_Run]) -> Iterator[str]:
    facts = dict.fromkeys(fact for run in runs for fact in run.facts)
    for key in (*_BETTER_SAME, *facts):
        found: dict[str, list[str]] = {}
        for run in runs:
            if key in facts and key not in run.facts:
                continue
            names = found.setdefault(_short(run.facts[key] if key in facts else run.at(key)), [])
            if run.name not in names:
                names.append(run.name)
        if len(found) > 1:
            shown = "; ".join(f"{value}: {', '.join(names)}" for value, names in found.items())
            yield f"{key} differs, compare with care ({shown})"
    for run in runs:
        if run.skipped:
            yield f"{run.path}: {run.skipped} client updates were skipped because they diverged"
        if not run.finished:
            what = "" if run.diverged else "its figures are of its last round so far; it "
            yield f"{run.path}: {what}{unfinished(run.path)}"
