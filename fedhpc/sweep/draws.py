"""Whether the trials that a sweep has were trained with what this program draws; ids do not tell."""

from __future__ import annotations

from pathlib import Path

from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.report.trial_files import read_done
from fedhpc.sweep.building import draw_of
from fedhpc.sweep.plan import Plan
from fedhpc.sweep.queue_files import read_histories


def refuse_other_draws(folder: Path, plan: Plan) -> None:
    """Compare a finished trial of each dataset and algorithm, and one with the defaults, with the plan: a few files.

    Args:
        folder: the sweep's; may hold nothing yet.
        plan: what is to be run there.

    Raises:
        ConfigError: hyperparameters are drawn in another way than when the sweep began; names them.
    """
    done = {trial for trial, history in read_histories(folder).items() if history.done}
    compared = set()
    for trial in plan.trials:
        kind = trial.dataset, trial.algorithm, trial.hparams_seed == 0
        if trial.id not in done or kind in compared:
            continue
        try:
            before = read_done(folder / trial.folder).get("hparams", {})
        except FedhpcError:
            continue  # its records are gone or damaged: it is repeated, or the report names it
        compared.add(kind)
        for name, value in plan.hparams[draw_of(trial)].items():
            if name in before and before[name] != value:
                place = folder / trial.folder
                raise ConfigError(
                    f"{place}: was trained with {name} = {before[name]}, which this version draws as {value}; choose "
                    f"another --out, or remove {place.parent} to repeat its trials"
                )
