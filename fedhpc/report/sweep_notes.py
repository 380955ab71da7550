"""What a reader of a sweep's tables should know beside the figures: what is missing and why, and what is odd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fedhpc.report.results import PlannedTrial
from fedhpc.report.selection import Criterion, TrialRecords
from fedhpc.report.sweeps import SweepResults

INCOMPLETE = "*"
_LONGEST_LIST = 20
_FEW_CANDIDATES = 5
_MOST_NAMED = 6
_COLORED = ("colored_mnist", "colored_digits")


def missing_trials(found: SweepResults) -> list[PlannedTrial]:
    """Planned trials without which a cell of some criterion is incomplete, in the order of the plan."""
    ids = {t.id for tables in found.tables.values() for table in tables for row in table.rows for t in row.missing}
    return [t for t in found.sweep.planned if t.id in ids]


def missing_notes(found: SweepResults) -> list[str]:
    """Which trials are missing, which of them failed, and the command that runs them."""
    trials, failed = missing_trials(found), found.sweep.failed or {}
    if not trials:
        return []
    command = rerun_command(found, trials)
    raised = sum(t.id in failed for t in trials)
    count = f"{len(trials)} trials are missing{f', {raised} of them failed' if raised else ''}"
    lines = [f"{INCOMPLETE} {count}{'; run them with:' if command else ''}"]
    lines += [f"  {command}"] if command else []
    shown = trials[:_LONGEST_LIST]
    lines += [
        f"  {t.id}: {t.algorithm} on {t.dataset}, test environments {list(t.test_envs)}, hparams seed "
        f"{t.hparams_seed}, trial {t.trial_seed}{': ' + t.command if t.command else ''}"
        f"{': failed: ' + failed[t.id] if t.id in failed else ''}"
        for t in shown
    ]
    if len(trials) > len(shown):
        lines.append(f"  and {len(trials) - len(shown)} more: see the tables' 'missing' in the JSON")
    return lines


def rerun_command(found: SweepResults, trials: list[PlannedTrial]) -> str:
    """The command that runs some trials of a sweep; empty where there is none.

    Failed ones need to be asked for, and so do those whose records are damaged.

    Trials that are done are passed over, so most sweeps need no list; one that has planned a part of its configuration
    would grow without it.
    """
    command = found.sweep.command
    if not command or not trials:
        return ""
    if found.sweep.whole and (len(trials) > _LONGEST_LIST or len(trials) == len(found.sweep.planned)):
        command = command.removesuffix("--only").rstrip()
    else:
        command += " " + ",".join(t.id for t in trials)
    again = found.sweep.problems or any(t.id in (found.sweep.failed or {}) for t in trials)
    return f"{command} --retry-failed" if again else command


def remarks(found: SweepResults) -> Iterator[str]:
    """Everything else, one line each."""
    yield from (f"damaged and not counted: {problem}" for problem in found.sweep.problems)
    for name, criterion in found.criteria.items():
        yield from _without_table(found, name, criterion)
    yield from _unmeasured(found)
    yield from _diverged(found)
    yield from _mixed_draws(found)
    candidates = len({t.hparams_seed for t in found.sweep.trials})
    if 0 < candidates < _FEW_CANDIDATES:
        adversarial = any(name.split("+")[-1] in ("dann", "cdann") for name in found.sweep.algorithms())
        alone = "; single draws of DANN and CDANN often do not converge" if adversarial else ""
        draws = "1 hyperparameter draw" if candidates == 1 else f"{candidates} hyperparameter draws"
        yield f"each choice is among {draws} (published tables: 20){alone}"
    for dataset in found.sweep.datasets():
        if dataset in _COLORED:
            yield (
                f"{dataset}: a quarter of the labels is noise, so prediction by shape ends at 75 %; prediction by "
                "colour gives 90, 80 and 10 % on the three environments. Look at the environments, not at their mean"
            )


def _without_table(found: SweepResults, name: str, criterion: Criterion) -> Iterator[str]:
    """Why a criterion says nothing about a dataset."""
    sweep = found.sweep
    for dataset in sweep.datasets():
        count = len(sweep.labels(dataset))
        if not count or any(table.dataset == dataset for table in found.tables[name]):
            continue
        needs = sorted({envs for e in range(count) for envs in criterion.needs(e, count)})
        have = {frozenset(t.test_envs) for t in sweep.planned if t.dataset == dataset}
        lacking = [list(envs) for envs in needs if frozenset(envs) not in have]
        why = f"it needs trials that hold out {', '.join(map(str, lacking[:_MOST_NAMED]))}"
        why += f" and {len(lacking) - _MOST_NAMED} more" if len(lacking) > _MOST_NAMED else ""
        hint = f"; name {name} in sweep.criteria and run the sweep again" if sweep.command else ""
        if any(len(envs) >= count for envs in needs):
            why, hint = f"with {count} environments it would leave none to train on", ""
        yield f"{dataset} cannot be judged by {criterion.title}: {why}{hint}"


def _unmeasured(found: SweepResults) -> Iterator[str]:
    """Environments without any accuracy on their validation parts."""
    sweep = found.sweep
    for dataset in sweep.datasets():
        checkpoints = [c for t in sweep.trials if t.dataset == dataset for c in t.checkpoints]
        empty = [
            label
            for env, label in enumerate(sweep.labels(dataset))
            if checkpoints
            and all(env < len(c.validation) and c.validation[env] != c.validation[env] for c in checkpoints)
        ]
        if empty:
            yield (
                f"{dataset}: nothing was measured on the validation part of environment {', '.join(empty)}: it has too "
                "few samples for the share that is held out (holdout_fraction); what is chosen by it has no value"
            )


def _diverged(found: SweepResults) -> Iterator[str]:
    runs = [t.run for t in found.sweep.trials if t.diverged]
    if runs:
        more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
        yield (
            f"{len(runs)} of {len(found.sweep.trials)} trials diverged (the last loss is not finite); they count with "
            f"what they recorded: {', '.join(runs[:_MOST_NAMED])}{more}"
        )


def _mixed_draws(found: SweepResults) -> Iterator[str]:
    """Draws whose trials did not all have its hyperparameters, as the program changed what it draws."""
    draws: dict[tuple[str, str, int, int], list[TrialRecords]] = {}
    for t in found.sweep.trials:
        draws.setdefault((t.algorithm, t.dataset, t.hparams_seed, t.trial_seed), []).append(t)
    lines = []
    for (algorithm, dataset, hparams_seed, trial_seed), trials in draws.items():
        if differing := list(_differing(trials)):
            place = f"{algorithm} on {dataset}, hparams seed {hparams_seed}, trial {trial_seed}"
            lines.append(f"trials of one draw had different hyperparameters: {place}: {'; '.join(differing)}")
    yield from lines[:_MOST_NAMED]
    if len(lines) > _MOST_NAMED:
        yield f"and {len(lines) - _MOST_NAMED} more draws whose trials had different hyperparameters"


def _differing(trials: Sequence[TrialRecords]) -> Iterator[str]:
    """Which hyperparameters trials that should have the same ones do not share; what is rarest names its trial."""
    for name in trials[0].hparams:
        values = Counter(str(t.hparams[name]) for t in trials if name in t.hparams)
        if len(values) > 1:
            rare = values.most_common()[-1][0]
            run = next(t.run for t in trials if str(t.hparams.get(name)) == rare)
            rest = ", ".join(f"{value} in {count} others" for value, count in values.most_common()[:-1])
            yield f"{name} is {rare} in {run} and {rest}"
