"""Ages and sexes as people write them, and one documented policy for what can't be used.

An age is used where it is one number of years (`61`, `43.0`, `061Y`), months, weeks or days (`8 months` is 0 years), or
a lower end of at least 80 (`85+`: a privacy rule, read as 85). Ranges (`60+`, `0-10`, `early 40s`), negative ages, ages
above 120 and other notations (`1e2`) are not known; so are blanks. A sex is M or F where it says so (`m`, `Male`,
`FEMALE`); numbers count only where the coding is given. Nothing is ever set to 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fedhpc.data._tables import is_missing

OLDEST = 120
TOP_CODED_FROM = 80
SEXES = ("M", "F")

_NUMBER = re.compile(r"0*(\d{1,3}(?:[.,]\d+)?)")
_UNITS = re.compile(
    r"0*(\d{1,4}(?:[.,]\d+)?)\s*(y|yr|yrs|year|years|m|mo|month|months|w|wk|week|weeks|d|day|days)\.?(?:\s*old)?"
)
_PER_YEAR = {"y": 1.0, "m": 12.0, "w": 52.1775, "d": 365.2425}
_TOP = re.compile(r"(?:>=?\s*|≥\s*)?(\d{2,3})\s*\+?")
_SEX = {"m": "M", "male": "M", "f": "F", "female": "F"}


@dataclass(frozen=True)
class Age:
    """An age in years, None where it can't be used, and then why."""

    years: float | None
    reason: str = ""


def parse_age(text: str) -> Age:
    """Read an age; see the module for the policy.

    Reasons are `missing`, `range`, `negative`, `above 120` and `not a number of years`.
    """
    found = text.strip().casefold()
    if is_missing(found):
        return Age(None, "missing")
    if number := _NUMBER.fullmatch(found):
        return _plausible(float(number[1].replace(",", ".")))
    if unit := _UNITS.fullmatch(found):
        years = float(unit[1].replace(",", ".")) / _PER_YEAR[unit[2][0]]
        return _plausible(years if unit[2][0] == "y" else float(int(years)))
    if found.startswith("-") and _NUMBER.fullmatch(found[1:].strip()):
        return Age(None, "negative")
    top = _TOP.fullmatch(found)
    if top and int(top[1]) >= TOP_CODED_FROM:
        return _plausible(float(top[1]))
    if top or re.search(r"\d\s*(-|–|to)\s*\d|\d+0s|early|late|mid|<|>|\+", found):
        return Age(None, "range")
    if re.fullmatch(r"\d+(\.\d*)?e[+-]?\d+|\d{4,}", found):
        return Age(None, "above 120 or not written in years")
    return Age(None, "not a number of years")


def _plausible(years: float) -> Age:
    return Age(years) if years <= OLDEST else Age(None, "above 120")


def parse_sex(text: str, coding: Mapping[str, str] | None = None) -> str | None:
    """`M`, `F`, or None for everything else.

    Args:
        text: the cell.
        coding: further spellings -> M or F, such as {"0": "M", "1": "F"}, in casefolded form.
    """
    found = text.strip().casefold()
    if coding and found in coding:
        return coding[found]
    return _SEX.get(found)
