"""Known answers of FedMedICL's endless loaders: sizes of batches, sampling weights, and how often classes come.

Which samples a balanced loader draws is a matter of its random stream; those draws are only checked for consistency.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedhpc.data.balanced import ReplayPasses, TaskPasses, balanced_weights
from tests.golden.fedmedicl_cases import Case, cases_of, folder_of

BALANCED = {"CB": "Target", "GB": "group"}
REPLAYED = {"ER": None, "FACTR": "Target"}


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    return folder_of(request.config)


def of_kinds(folder: Path, *kinds: str) -> list[tuple[Case, str]]:
    found = [(case, kind) for case in cases_of(folder, "cases", "kinds") for kind in kinds if kind in case["kinds"]]
    return found or pytest.skip(f"no samplers {', '.join(kinds)}")


def test_plain_batches(folder: Path) -> None:
    for case, kind in of_kinds(folder, "plain"):
        expected = case["kinds"][kind]
        drawn = [positions.tolist() for positions in drawn_by(passes(case, None), case["n"])]
        assert [len(d) for d in drawn] == expected["batch_sizes_first_12"]
        assert drawn[: len(expected["first_batches"])] == expected["first_batches"]


def test_balanced_weights_and_shares(folder: Path) -> None:
    for case, kind in of_kinds(folder, *BALANCED):
        expected, keys = case["kinds"][kind], np.array(case[BALANCED[kind]])
        weights = balanced_weights(keys)
        assert len(keys) == case["n"] == expected["num_samples_per_pass"]
        np.testing.assert_allclose(weights[:10], expected["weights_first_10"], rtol=1e-15)
        share = weights / weights.sum()
        for name, values in (("class", case["Target"]), ("group", case["group"])):
            wanted = expected[f"expected_{name}_prob"]
            found = np.bincount(values, share, minlength=len(wanted))
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-15)
            theirs = np.array(expected[f"empirical_{name}_freq"])
            assert theirs.sum() == expected["draws"]
            check_frequencies(theirs, expected["draws"] * found)


def test_balanced_batches(folder: Path) -> None:
    for case, kind in of_kinds(folder, *BALANCED):
        expected, keys = case["kinds"][kind], np.array(case[BALANCED[kind]])
        drawn = list(drawn_by(passes(case, keys, case["steps"]), case["n"]))
        assert [len(d) for d in drawn[:12]] == expected["batch_sizes_first_12"]
        assert sum(map(len, drawn)) == expected["draws"]
        present = np.unique(keys)
        found = np.bincount(keys[np.concatenate(drawn)], minlength=keys.max() + 1)
        assert found.sum() == found[present].sum()
        check_frequencies(found[present], np.full(len(present), found.sum() / len(present)))
        check_rows(expected, range(case["n"]))
        assert 0 < expected["first_pass_unique_rows"] <= case["n"]
        if (
            sum(expected["batch_sizes_first_12"][: len(expected["first_batches"])]) >= case["n"]
        ):  # the whole pass is told
            rows = [row for batch in expected["first_batches"] for row in batch][: case["n"]]
            assert len(set(rows)) == expected["first_pass_unique_rows"]


def test_replayed_batches(folder: Path) -> None:
    """Samples of the current task, then those of the memory: as many, in two endless passes of their own."""
    for case, kind in of_kinds(folder, *REPLAYED):
        expected, size = case["kinds"][kind], case["batch_size"]
        own_sizes = [len(d) for d in drawn_by(passes(case, None), case["n"])]
        stored = [total - own for total, own in zip(expected["batch_sizes_first_12"], own_sizes, strict=True)]
        last = next((i for i, num in enumerate(stored) if num < size), len(stored) - 1)  # of a pass over the memory
        num_memory = sum(stored[: last + 1])
        keys = None if REPLAYED[kind] is None else np.array(case["Target"])
        memory_keys = None if keys is None else (lambda client, task, num=num_memory: np.zeros(num, dtype=int))
        plan = ReplayPasses(passes(case, keys), size, lambda client, task, num=num_memory: num, memory_keys)
        drawn = [positions for (positions,) in plan.batches(0, 0, case["n"] + num_memory)]
        assert [len(d) for d in drawn] == expected["batch_sizes_first_12"]
        for found, own, batch in zip(drawn, own_sizes, expected["first_batches"], strict=False):
            assert (found[:own] < case["n"]).all()
            assert (found[own:] >= case["n"]).all()
            assert all(0 <= row < case["n"] for row in batch[:own])
            assert all(0 <= row < num_memory for row in batch[own:])
            if keys is None:
                assert found[:own].tolist() == batch[:own]
        if keys is None:  # one pass is the whole memory, here and there
            check_pass([d[own:] - case["n"] for d, own in zip(drawn, own_sizes, strict=False)], num_memory)
            check_pass([b[own:] for b, own in zip(expected["first_batches"], own_sizes, strict=False)], num_memory)
        check_rows(expected, range(max(case["n"], num_memory)))


def passes(case: Case, keys: np.ndarray | None, steps: int = 12) -> TaskPasses:
    by_task = None if keys is None else (lambda client, task: keys)
    return TaskPasses(5, case["batch_size"], steps, 1, order="stored", keys=by_task, merge_single=False)


def drawn_by(plan: TaskPasses, num: int) -> list[np.ndarray]:
    return [positions for (positions,) in plan.batches(0, 0, num)]


def check_pass(batches: list[np.ndarray] | list[list[int]], num: int) -> None:
    rows = [int(row) for batch in batches for row in batch]
    for start in range(0, len(rows) - num + 1, num):
        assert sorted(rows[start : start + num]) == list(range(num))


def check_rows(expected: Case, known: range) -> None:
    sizes = expected["batch_sizes_first_12"]
    assert [len(batch) for batch in expected["first_batches"]] == sizes[: len(expected["first_batches"])]
    assert all(row in known for batch in expected["first_batches"] for row in batch)


def check_frequencies(found: np.ndarray, expected: np.ndarray) -> None:
    """Chi-squared at 0.1 %; what is never expected never comes."""
    from scipy.stats import chi2

    there = expected > 0
    assert not found[~there].any()
    statistic = ((found[there] - expected[there]) ** 2 / expected[there]).sum()
    assert statistic <= chi2.ppf(0.999, max(int(there.sum()) - 1, 1))
