"""The published means of DomainBed, to hold one's own against.

Test accuracy in percent, mean over the test environments and three trials, of the code of September 2020: 5,001 steps,
20 hyperparameter draws, ResNet-50 with frozen batch norm (Gulrajani and Lopez-Paz, "In Search of Lost Domain
Generalization"; the result file in its repository).
"""

from __future__ import annotations

from fedhpc.report.names import DATASETS, ENVIRONMENTS

CONDITIONS = "5001 steps, 20 draws, 3 trials, ResNet-50 with frozen batch norm"
_CRITERIA = ("training_domain_validation", "leave_one_domain_out", "oracle")
_MEANS = """
erm 51.5/36.7/57.8 98.0/97.7/97.8 77.5/77.2/77.6 85.5/83.0/86.7 66.5/65.7/66.4 46.1/41.4/53.0 40.9/40.6/41.3
irm 52.0/40.3/67.7 97.7/97.0/97.5 78.5/76.3/76.9 83.5/81.5/84.5 64.3/64.3/63.0 47.6/41.2/50.5 33.9/33.5/28.0
groupdro 52.1/36.8/61.1 98.0/97.6/97.9 76.7/77.9/77.4 84.4/83.5/87.1 66.0/65.2/66.2 43.2/44.9/52.4 33.3/33.0/33.4
mixup 52.1/33.4/58.4 98.0/97.8/98.0 77.4/77.7/78.1 84.6/83.2/86.8 68.1/67.0/68.0 47.9/48.7/54.4 39.2/38.5/39.6
mldg 51.5/36.7/58.2 97.9/97.6/97.8 77.2/77.2/77.5 84.9/82.9/86.8 66.8/66.1/66.6 47.7/46.2/52.0 41.2/41.0/41.6
coral 51.5/39.7/58.6 98.0/97.8/98.0 78.8/78.7/77.7 86.2/82.6/87.1 68.7/68.5/68.4 47.6/46.3/52.8 41.5/41.1/41.8
mmd 51.5/36.8/63.3 97.9/97.8/98.0 77.5/77.3/77.9 84.6/83.2/87.2 66.3/60.2/66.2 42.2/46.5/52.0 23.4/23.4/23.5
dann 51.5/40.7/57.0 97.8/97.6/97.9 78.6/76.9/79.7 83.6/81.0/85.2 65.9/64.9/65.3 46.7/44.4/50.6 38.3/38.2/38.3
cdann 51.7/39.1/59.5 97.9/97.5/97.9 77.5/77.5/79.9 82.6/78.8/85.8 65.8/64.3/65.3 45.8/39.9/50.8 38.3/38.0/38.5
"""
"""A line per algorithm: DomainBed's datasets in its order, each under the three criteria."""
_ERRORS = "erm 0.1/0.1/0.2 0.0/0.0/0.1 0.4/0.4/0.3 0.2/0.7/0.3 0.3/0.5/0.5 1.8/1.4/0.3 0.1/0.2/0.1"
"""Standard errors of the same, as far as they are at hand."""


def published_mean(criterion: str, dataset: str, algorithm: str, num_environments: int | None = None) -> float | None:
    """The published mean over test environments in percent; None where there is none.

    Args:
        criterion: name of a criterion of ours.
        dataset: our name of a dataset.
        algorithm: our name of an algorithm.
        num_environments: that a mean is over which is to be held against it: there is none unless these are all.
    """
    return _entry(_MEANS, criterion, dataset, algorithm, num_environments)


def published_error(criterion: str, dataset: str, algorithm: str, num_environments: int | None = None) -> float | None:
    """The standard error of `published_mean`, over three trials; None where it is not known."""
    return _entry(_ERRORS, criterion, dataset, algorithm, num_environments)


def _entry(table: str, criterion: str, dataset: str, algorithm: str, num_environments: int | None) -> float | None:
    rows = {name: cells for name, *cells in map(str.split, table.strip().splitlines())}
    if criterion not in _CRITERIA or dataset not in DATASETS or algorithm not in rows:
        return None
    if num_environments not in (None, len(ENVIRONMENTS[dataset])):
        return None
    cell = rows[algorithm][list(DATASETS).index(dataset)]
    return float(cell.split("/")[_CRITERIA.index(criterion)])
