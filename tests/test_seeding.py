"""Streams by name: the same everywhere and for ever, and no two names alike."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys

import numpy as np
import pytest

from fedhpc.seeding import derive, generator, text_hash

NAMES: list[tuple[str | int, ...]] = [
    (),
    ("a",),
    ("a", "b"),
    ("ab",),
    ("b", "a"),
    ("a", "bc"),
    ("ab", "c"),
    ("abc",),
    (1,),
    ("1",),
    (1, 1),
    (11,),
    (-1,),
    ("-1",),
    ("a|s1:b",),
    ("batches", 1, 12),
    ("batches", 11, 2),
    ("batches", 12, 1),
]


def test_names_that_look_alike_give_different_streams() -> None:
    seeds = [derive(seed, *names) for seed in (0, 1, 10) for names in NAMES]
    assert len(set(seeds)) == len(seeds)


def test_seeds_are_pinned() -> None:
    # A run saved by one release goes on under the next: these numbers never change.
    assert derive(0, "cohort", 0) == 3362267509828622685
    assert derive(7, "batches", 3, 12) == 3114039066695612088
    text = b"7|s7:batches|i1:3|i2:12"
    assert derive(7, "batches", 3, 12) == int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def test_seeds_fill_64_bits() -> None:
    seeds = np.array([derive(0, i) for i in range(2000)], dtype=np.uint64)
    shares = np.array([float(((seeds >> np.uint64(bit)) & np.uint64(1)).mean()) for bit in range(64)])
    assert np.abs(shares - 0.5).max() < 0.06


@pytest.mark.parametrize("name", [1.0, None, True, b"a", np.int64(1)], ids=repr)
def test_names_of_other_types_are_refused(name: object) -> None:
    with pytest.raises(TypeError, match="stream names"):
        derive(0, name)  # type: ignore[arg-type]


def test_a_generator_begins_its_stream_anew_each_time() -> None:
    first, again, other = (generator(3, "x", k).random(5) for k in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_streams_do_not_depend_on_the_process() -> None:
    # PYTHONHASHSEED would change a seed built on hash().
    code = "from fedhpc.seeding import derive; print(derive(5, 'batches', 1))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": s, "PYTHONPATH": "."}, capture_output=True, text=True
        ).stdout
        for s in ("0", "1")
    }
    assert found == {f"{derive(5, 'batches', 1)}\n"}


def test_text_hash_is_the_md5_of_the_printed_tuple() -> None:
    expected = int(hashlib.md5(b"(0, 'lr', [1, 2.5], None)").hexdigest(), 16) % 2**31
    assert text_hash(0, "lr", [1, 2.5], None) == expected
    assert 0 <= text_hash("x") < 2**31


@pytest.mark.parametrize("name", [np.float64(1), np.int64(1), [np.int32(2)], {"a": 1}], ids=repr)
def test_text_hash_refuses_what_prints_differently_elsewhere(name: object) -> None:
    with pytest.raises(TypeError, match="plain Python numbers"):
        text_hash(name)


def test_pairs_of_adjacent_seeds_are_unrelated() -> None:
    draws = [generator(seed, "cohort", r).random() for seed, r in itertools.product(range(20), range(20))]
    assert len(set(draws)) == 400
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.2
