"""What a person should know before a sweep runs: trials without training, ERM in disguise, and the networks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedhpc import registry
from fedhpc.objectives._domains import DomainObjective
from fedhpc.objectives.hparams import Value
from fedhpc.objectives.setting import Setting
from fedhpc.report.names import ALGORITHMS, in_order
from fedhpc.sweep.building import IMAGENET, Draw, choose_model, draw_of, hparams_of, input_size
from fedhpc.sweep.estimate import DatasetFacts
from fedhpc.sweep.trials import TrialSpec

_SERIOUS = (
    "trains nothing", "is ERM", "tests on what it trained on", "nothing to be invariant to", "warm-up is longer",
)  # fmt: skip
"""By what they say: remarks on trials whose numbers do not mean what a table would make of them; worst first."""


@dataclass(frozen=True)
class Remark:
    """One thing about some trials of one dataset.

    Attributes:
        text: about which algorithms, and what.
        num_trials: how many trials it is about.
        rank: place among the serious ones; larger than all of theirs for the rest.
    """

    text: str
    num_trials: int
    rank: int

    @property
    def is_serious(self) -> bool:
        """Whether a reader must not miss it."""
        return self.rank < len(_SERIOUS)


def find_remarks(
    trials: Iterable[TrialSpec],
    num_environments: Mapping[str, int],
    hparams: Mapping[Draw, Mapping[str, Value]] | None = None,
) -> list[Remark]:
    """Remarks on trials, most serious first, then most frequent first; algorithms of which the same is true share one.

    Args:
        trials: of a sweep.
        num_environments: by dataset.
        hparams: by draw, as far as they are known already.
    """
    known = dict(hparams or {})
    kinds: Counter[tuple[Draw, int, int, str]] = Counter()
    for trial in trials:
        draw = draw_of(trial)
        if draw not in known:
            known[draw] = hparams_of(trial)
        kinds[draw, len(trial.test_envs), trial.steps, trial.profile] += 1
    counts: Counter[tuple[str, str]] = Counter()
    algorithms: dict[tuple[str, str], dict[str, None]] = {}
    for (draw, num_tested, steps, profile), count in kinds.items():
        dataset, algorithm, *_ = draw
        setting = Setting(num_environments[dataset] - num_tested, known[draw], profile)  # type: ignore[arg-type]
        for text in _of(algorithm, setting, steps):
            key = dataset, text.removeprefix(algorithm)
            counts[key] += count
            algorithms.setdefault(key, {})[algorithm] = None
    found = [
        Remark(f"{dataset}: {', '.join(in_order(algorithms[dataset, text], ALGORITHMS))}{text}", count, _rank(text))
        for (dataset, text), count in counts.items()
    ]
    return sorted(found, key=lambda r: (r.rank, -r.num_trials))


def _of(algorithm: str, setting: Setting, steps: int) -> Iterable[str]:
    """What is to be said about one algorithm in a setting; each text begins with its name."""
    kind: type[DomainObjective] = registry.load("fedhpc.objectives", algorithm).OBJECTIVE
    yield from kind.remarks(setting)
    if float(setting.hparams.get("irm_penalty_anneal_iters", 0)) >= steps:
        yield f"{algorithm}'s warm-up is longer than the training"


def _rank(text: str) -> int:
    return next((place for place, phrase in enumerate(_SERIOUS) if phrase in text), len(_SERIOUS))


def remark_lines(found: Iterable[Remark]) -> list[str]:
    """Remarks as lines of text."""
    return [f"{r.text} ({r.num_trials:,} trials)" for r in found]


def network_lines(
    trials: Sequence[TrialSpec],
    facts: Mapping[str, DatasetFacts],
    hparams: Mapping[Draw, Mapping[str, Value]],
) -> list[str]:
    """The networks that trials train, one line per dataset and network."""
    lines: dict[str, None] = {}
    for trial in {(t.dataset, t.hparams_seed, t.trial_seed): t for t in trials}.values():
        about, values = facts[trial.dataset], hparams[draw_of(trial)]
        choice = choose_model(trial.setup, values, *input_size(trial.setup, about.height, about.width, about.channels))
        start = f"starting from {choice.weights}" if choice.weights else "starting fresh"
        if values["resnet50_augmix"] and choice.weights == IMAGENET:
            start += " (the original, by resnet50_augmix, from timm's resnet50.ram_in1k)"
        frozen = ", batch norm frozen" if choice.freeze_bn else ""
        lines[f"{trial.dataset}: {choice.name}, {start}{frozen}"] = None
    return list(lines)


def split_lines(trials: Sequence[TrialSpec], facts: Mapping[str, DatasetFacts]) -> list[str]:
    """Environments that are too small for a validation part, one line per dataset: criteria cannot choose by them."""
    lines = []
    for dataset, about in facts.items():
        trial = next((t for t in trials if t.dataset == dataset), None)
        if trial is None or trial.setup.get("stored_split"):
            continue
        least = 0.5 if trial.setup.get("stratified") else 1.0  # rounded, or rounded down
        sizes = zip(about.environments, about.sizes, strict=True)
        small = [f"{name} ({size})" for name, size in sizes if size == 1 or 0 < size * trial.holdout_fraction < least]
        if small:
            lines.append(
                f"{dataset}: holdout_fraction {trial.holdout_fraction:g} leaves no validation part in environment "
                f"{', '.join(small)}: the oracle cannot choose where it is tested on, training-domain validation "
                "wherever it is trained on"
            )
    return lines
