"""DomainBed's names for what we call otherwise, and its order of rows and columns."""

from __future__ import annotations

from collections.abc import Iterable

ALGORITHMS = {
    "erm": "ERM", "irm": "IRM", "groupdro": "GroupDRO", "mixup": "Mixup", "mldg": "MLDG", "coral": "CORAL",
    "mmd": "MMD", "dann": "DANN", "cdann": "CDANN",
}  # fmt: skip
DATASETS = {
    "colored_mnist": "ColoredMNIST", "rotated_mnist": "RotatedMNIST", "vlcs": "VLCS", "pacs": "PACS",
    "office_home": "OfficeHome", "terra_incognita": "TerraIncognita", "domain_net": "DomainNet",
}  # fmt: skip
ENVIRONMENTS = {
    "colored_mnist": ("+90%", "+80%", "-90%"),
    "rotated_mnist": ("0", "15", "30", "45", "60", "75"),
    "vlcs": ("C", "L", "S", "V"),
    "pacs": ("A", "C", "P", "S"),
    "office_home": ("A", "C", "P", "R"),
    "terra_incognita": ("L100", "L38", "L43", "L46"),
    "domain_net": ("clip", "info", "paint", "quick", "real", "sketch"),
}
_OURS = {theirs: ours for table in (ALGORITHMS, DATASETS) for ours, theirs in table.items()}


def ours(name: str) -> str:
    """Our name for one of DomainBed's; a name it does not have stays."""
    return _OURS.get(name, name)


def theirs(name: str) -> str:
    """DomainBed's name for one of ours; a name it does not have stays."""
    return ALGORITHMS.get(name) or DATASETS.get(name) or name


def in_order(found: Iterable[str], table: Iterable[str]) -> list[str]:
    """The names found, each once: those of a table in its order, then the others in order of appearance."""
    seen = list(dict.fromkeys(found))
    known = list(table)
    return [name for name in known if name in seen] + [name for name in seen if name not in known]


def environment_labels(dataset: str, count: int) -> tuple[str, ...]:
    """Short names of a dataset's environments: DomainBed's where it knows the dataset, else the numbers."""
    labels = ENVIRONMENTS.get(dataset, ())
    return labels if len(labels) == count else tuple(str(i) for i in range(count))
