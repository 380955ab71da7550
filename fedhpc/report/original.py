"""DomainBed's own folders: `<sweep>/<run>/results.jsonl` and `done`. Read so that its sweeps can be reported on,
written so that its scripts work on ours.

Its records are JSON objects, one a line, in which NaN is the bare word.
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.report.names import ours, theirs
from fedhpc.report.results import PlannedTrial, SweepRecords
from fedhpc.report.selection import Checkpoint, TrialRecords
from fedhpc.report.trial_files import LARGER, METRICS, SMALLER, read_done, read_sweep
from fedhpc.runs.records import Record, read_records
from fedhpc.seeding import text_hash

RESULTS, DONE = "results.jsonl", "done"
_METRICS = {"step_seconds": "step_time", "memory_gib": "mem_gb"}
"""Our names of quantities where DomainBed has another; the rest (loss, penalty, epoch, ...) are the same."""
_STEPS, _FREQ = 5001, 300
_CHECKPOINT_FREQ = {"colored_mnist": 100, "rotated_mnist": 100, "domain_net": 1000}
"""What DomainBed's datasets ask for where a command does not: steps, and steps between two evaluations."""
_RUN_ARGUMENTS = ("dataset", "algorithm", "test_envs", "holdout_fraction", "hparams_seed", "data_dir", "task",
                  "trial_seed", "seed")  # fmt: skip


def is_original_sweep(directory: Path) -> bool:
    """Whether a directory holds runs of DomainBed."""
    return next(directory.glob(f"*/{RESULTS}"), None) is not None


def read_original(directory: Path) -> SweepRecords:
    """Read a sweep of DomainBed. A last line that was cut by a kill is passed over; a run without `done` is unfinished.

    Raises:
        ConfigError: there is no such sweep.
    """
    if not directory.is_dir() or not is_original_sweep(directory):
        raise ConfigError(f"{directory}: holds no folders with {RESULTS}, DomainBed's records")
    trials, problems, arguments = [], [], {}
    for file in sorted(directory.glob(f"*/{RESULTS}")):
        try:
            records = list(_lines(file))
            trial = original_trial(records, file.parent.name, (file.parent / DONE).exists())
        except FedhpcError as error:
            problems.append(str(error))
            continue
        if trial is not None:
            trials.append(trial)
            arguments[trial.run] = records[0]["args"]
    plan = tuple(_inferred_plan(trials, arguments, str(directory)))
    return SweepRecords(str(directory), tuple(trials), plan, problems=tuple(problems), has_defaults=True)


def _inferred_plan(
    trials: Sequence[TrialRecords], arguments: Mapping[str, Mapping[str, Any]], out: str
) -> Iterator[PlannedTrial]:
    """What the sweep must have consisted of: all combinations of the seeds and kinds of test environments it has."""
    seeds = sorted({t.hparams_seed for t in trials}), sorted({t.trial_seed for t in trials})
    largest = min(2, max((len(t.test_envs) for t in trials), default=1))
    for dataset, algorithm in dict.fromkeys((t.dataset, t.algorithm) for t in trials):
        like = next(t for t in trials if t.dataset == dataset)
        num_environments = max(len(c.validation) for c in like.checkpoints)
        for envs in (s for size in range(1, largest + 1) for s in combinations(range(num_environments), size)):
            for hparams_seed, trial_seed in product(*seeds):
                changed = {"algorithm": algorithm, "test_envs": envs, "hparams_seed": hparams_seed}
                spec = {**arguments[like.run], **changed, "dataset": dataset, "trial_seed": trial_seed}
                spec["seed"] = text_hash(theirs(dataset), theirs(algorithm), list(envs), hparams_seed, trial_seed)
                args = run_arguments(spec, str(spec.get("data_dir", "DATA")))
                name = run_name(args)
                yield PlannedTrial(
                    name, name, dataset, algorithm, envs, hparams_seed, trial_seed, run_command(args, out)
                )


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
            except ValueError:
                if not line.endswith("\n"):
                    return
                raise FedhpcError(f"{file}: line {number} is not JSON") from None
            if not isinstance(record, dict):
                raise FedhpcError(f"{file}: line {number} is not a JSON object")
            yield record


def original_trial(records: list[dict[str, Any]], run: str, finished: bool) -> TrialRecords | None:
    """One run's records as a trial; None if there are none.

    Raises:
        FedhpcError: something is missing in them.
    """
    if not records:
        return None
    try:
        args = records[0]["args"]
        return TrialRecords(
            run=run,
            dataset=ours(args["dataset"]),
            algorithm=ours(args["algorithm"]),
            test_envs=tuple(args["test_envs"]),
            hparams_seed=args["hparams_seed"],
            trial_seed=args["trial_seed"],
            checkpoints=tuple(_checkpoint(record) for record in records),
            hparams=records[0].get("hparams", {}),
            finished=finished,
            diverged=any(key.endswith("loss") and not math.isfinite(value) for key, value in records[-1].items()),
        )
    except (KeyError, TypeError) as error:
        raise FedhpcError(f"{run}/{RESULTS}: a record lacks {error}") from None


def _checkpoint(record: Mapping[str, Any]) -> Checkpoint:
    count = 0
    while f"env{count}_out_acc" in record:
        count += 1
    return Checkpoint(
        record["step"],
        tuple(record.get(f"env{i}_in_acc", math.nan) for i in range(count)),
        tuple(record[f"env{i}_out_acc"] for i in range(count)),
    )


def run_arguments(spec: Mapping[str, Any], data_dir: str) -> dict[str, Any]:
    """What DomainBed's sweep hands to its training script for one trial, in its names and its order.

    Args:
        spec: fields of a trial: dataset, algorithm, test_envs, holdout_fraction, hparams_seed, trial_seed, seed, and,
            only where they differ from the dataset's defaults, `steps` and `hparams` (a JSON text).
        data_dir: the data's folder; DomainBed takes it for a part of a run's identity.
    """
    known = {
        "task": "domain_generalization",
        **spec,
        "dataset": theirs(spec["dataset"]),
        "algorithm": theirs(spec["algorithm"]),
        "test_envs": list(spec["test_envs"]),
        "data_dir": data_dir,
    }
    return {key: known[key] for key in (*_RUN_ARGUMENTS, "steps", "hparams") if known.get(key) is not None}


def run_name(arguments: Mapping[str, Any]) -> str:
    """The folder that DomainBed gives a run with these arguments."""
    return hashlib.md5(json.dumps(arguments, sort_keys=True).encode()).hexdigest()


def run_command(arguments: Mapping[str, Any], out: str) -> str:
    """The command by which DomainBed runs it."""
    words = ["python", "-m", "domainbed.scripts.train"]
    for name, value in sorted({**arguments, "output_dir": f"{out}/{run_name(arguments)}"}.items()):
        values = value if isinstance(value, list) else [value]
        words += [f"--{name}", *(shlex.quote(str(v)) for v in values)]
    return " ".join(words)


def export_original(sweep: Path, out: Path, data_dir: str = "") -> int:
    """Write the finished trials of one of our sweeps as folders that DomainBed's scripts read; returns how many.

    A folder has the name that DomainBed's own sweep gives the run, so that its `sweep launch` with the same choices,
    `--data_dir` and `--output_dir` takes the run for done and goes on with the rest.

    Args:
        sweep: the sweep's folder.
        out: where the folders go; empty or not there.
        data_dir: `--data_dir` of the original's sweep, a part of each run's name.

    Raises:
        ConfigError: the target holds something already.
        FedhpcError: it cannot be written.
    """
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out}: is not empty; export to another directory")
    found = read_sweep(sweep)
    try:
        for trial in found.trials:
            _export(sweep / trial.run, out, data_dir)
    except OSError as error:
        raise FedhpcError(f"{out}: cannot be written: {error.strerror}") from None
    return len(found.trials)


def _export(folder: Path, out: Path, data_dir: str) -> None:
    done = read_done(folder)
    spec = {"holdout_fraction": 0.2, **done["spec"]}
    arguments = run_arguments({**spec, **_given(spec)}, data_dir)
    target = out / run_name(arguments)
    target.mkdir(parents=True)
    freq = spec.get("checkpoint_freq")
    args = {
        "hparams": None, "steps": None, "save_model_every_checkpoint": False, "skip_model_save": True,
        "uda_holdout_fraction": 0, **arguments, "output_dir": str(target),
        "checkpoint_freq": None if freq == _CHECKPOINT_FREQ.get(spec["dataset"], _FREQ) else freq,
    }  # fmt: skip
    rows = original_records(read_records(folder / METRICS), args, done["hparams"])
    (target / RESULTS).write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in rows), encoding="utf-8")
    (target / DONE).write_text("done", encoding="utf-8")


def _given(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What a user of DomainBed would have had to give: a JSON text of hyperparameters, steps other than its own."""
    hparams = spec.get("hparams")
    steps = spec.get("steps")
    return {
        "hparams": json.dumps(hparams) if hparams else None,
        "steps": None if steps == _STEPS else steps,
    }


def original_records(
    records: Iterator[Record], args: Mapping[str, Any], hparams: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Our records of one trial as DomainBed's: one object per checkpoint."""
    rows: dict[int, dict[str, Any]] = {}
    for record in records:
        row = rows.setdefault(record.round, {"args": dict(args), "hparams": dict(hparams), "step": record.round})
        value = math.nan if record.value is None else record.value
        if record.environment is None:
            row[_METRICS.get(record.what, record.what)] = value
        elif record.what in (*LARGER, *SMALLER):
            row[f"env{record.environment}_{'in' if record.what in LARGER else 'out'}_acc"] = value
    yield from rows.values()
