"""Which samples train, validate, test and are held out, in mode `fixed`: as stored, but no unit in two places."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from fedhpc.data.partition import HOLDOUT, TEST, TRAIN, VALIDATION
from fedhpc.data.table import SampleTable
from fedhpc.data.units import at_home, divided
from fedhpc.errors import ConfigError
from fedhpc.medical.scenarios._base import Scenario, stream

_NAMES = {"train": TRAIN, "validation": VALIDATION, "test": TEST, "holdout": HOLDOUT}
_NOWHERE = -1


@dataclass(eq=False)
class Parts:
    """The samples of each part, and what became of the others.

    Attributes:
        rows: `train`, `validation`, `test`, `holdout` -> indices.
        unused: reason -> number of samples that are in no part.
        notes: what a reader of the run should know.
    """

    rows: dict[str, np.ndarray] = field(default_factory=dict)
    unused: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def find_parts(scenario: Scenario, table: SampleTable, units: np.ndarray, seed: int) -> Parts:
    """Training, validation, test and hold-out samples: as stored, else by whole units.

    With `by_environment`, what an environment's stored split lacks is made for that environment: of joined datasets
    one can have validation samples and the other none. A unit of several environments or stored parts belongs to the
    one with most of its samples; its other samples are not used.

    Raises:
        ConfigError: there are such units, and `divided_units` is `refuse`.
    """
    found, codes = Parts(), table.split.astype(np.int64)
    places = table.environment if scenario.by_environment else np.zeros(table.num_samples, dtype=np.int64)
    if scenario.by_environment:
        _bring_home(scenario, found, codes, units, places, "environments", "environment")
    _make_up(scenario, table, found, codes, places, units, seed)
    _bring_home(scenario, found, codes, units, codes, "parts of the stored split", "part")
    found.unused["the stored split: in no part"] = int((~np.isin(codes, [*_NAMES.values(), _NOWHERE])).sum())
    draw = _Draw(codes, places, units, seed, scenario.by_environment)
    draw.move(TRAIN, VALIDATION, scenario.validation_fraction, "validation")
    if scenario.holdout == "disjoint":
        draw.move(TEST, HOLDOUT, scenario.holdout_fraction, "holdout")
    found.rows = {name: np.flatnonzero(codes == code) for name, code in _NAMES.items()}
    if scenario.holdout == "test":
        found.rows["holdout"] = np.union1d(found.rows["holdout"], found.rows["test"])
        found.notes.append("the hold-out holds the clients' test samples, too (scenario.holdout: test)")
    return found


def _bring_home(
    scenario: Scenario, found: Parts, codes: np.ndarray, units: np.ndarray, places: np.ndarray, several: str, one: str
) -> None:
    """Take samples that are not where most of their unit's samples are out of `codes`, in place, and say so."""
    there = codes != _NOWHERE
    number = divided(units[there], places[there])
    if not number:
        return
    if scenario.divided_units == "refuse":
        raise ConfigError(
            f"scenario.divided_units: {number} of {len(np.unique(units[there]))} units have samples in several "
            f"{several}; `home` keeps each where most of its samples are, and `scenario.unit: ''` divides samples"
        )
    away = np.flatnonzero(there)[~at_home(units[there], places[there])]
    codes[away] = _NOWHERE
    found.unused[f"units in several {several}: in another {one} than most of their unit"] = len(away)
    found.notes.append(f"{number} units have samples in several {several}; each is kept where most of its samples are")


def _make_up(
    scenario: Scenario, table: SampleTable, found: Parts, codes: np.ndarray, places: np.ndarray, units: np.ndarray,
    seed: int,
) -> None:  # fmt: skip
    """Draw test samples where no split of training and tests is stored; what is stored for other ends stays."""
    draw = _Draw(codes, places, units, seed, scenario.by_environment)
    none = (draw.lacking(TRAIN) | draw.lacking(TEST)) & (codes != _NOWHERE) & ~np.isin(codes, [VALIDATION, HOLDOUT])
    if not none.any():
        return
    codes[none] = TRAIN
    codes[draw.some(none, scenario.test_fraction, "test")] = TEST
    where = ""
    if len(np.unique(places[none])) < len(np.unique(places)):
        where = f" of {', '.join(table.environment_names[place] for place in np.unique(places[none]))}"
    found.notes.append(f"the dataset stores no split{where}: {scenario.test_fraction:g} of the units are for tests")


@dataclass(frozen=True, eq=False)
class _Draw:
    """Chooses whole units of each place (one, or every environment) at random; `codes` are the parts so far."""

    codes: np.ndarray
    places: np.ndarray
    units: np.ndarray
    seed: int
    by_environment: bool

    def lacking(self, code: int) -> np.ndarray:
        """Samples of the places that have nothing in a part."""
        return ~np.isin(self.places, self.places[self.codes == code])

    def some(self, among: np.ndarray, fraction: float, name: str) -> np.ndarray:
        """Indices of the samples of a random share of the units of each place."""
        chosen = [np.zeros(0, dtype=np.int64)]
        for place in np.unique(self.places[among]).tolist():
            there = np.unique(self.units[among & (self.places == place)])
            rng = stream(self.seed, name, place) if self.by_environment else stream(self.seed, name)
            chosen.append(rng.permutation(there)[: round(fraction * len(there))])
        return np.flatnonzero(among & np.isin(self.units, np.concatenate(chosen)))

    def move(self, source: int, target: int, fraction: float, name: str) -> None:
        """Bring a share of one part into another, in the places that have nothing there."""
        self.codes[self.some((self.codes == source) & self.lacking(target), fraction, name)] = target
