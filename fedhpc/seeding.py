"""Every random stream is a function of the run's seed and a name, never of a rank, a worker or a clock."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def derive(seed: int, *names: str | int) -> int:
    """Return a 64-bit seed for the stream `names` of the run `seed`.

    Names are hashed with their types and lengths, so `("a", "bc")` and `("ab", "c")`, `1` and `"1"` differ.
    """
    digest = hashlib.sha256(str(int(seed)).encode())
    for name in names:
        if isinstance(name, bool) or not isinstance(name, (str, int)):
            raise TypeError(f"stream names are str or int, got {name!r}")
        text = name if isinstance(name, str) else str(int(name))
        digest.update(f"|{type(name).__name__[0]}{len(text)}:{text}".encode())
    return int.from_bytes(digest.digest()[:8], "little")


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a numpy generator for the stream `names` of the run `seed`."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive(seed, *names)))


def text_hash(*names: object) -> int:
    """Return DomainBed's seed for the stream `names`: the MD5 of the tuple as Python prints it, modulo 2^31.

    Only for numbers that must equal the original's (hyperparameters, splits, trial seeds). Numbers must be plain
    Python ones: a NumPy scalar prints differently and is refused.

    Raises:
        TypeError: something else than None, bool, int, float, str, or lists of them.
    """
    for name in names:
        _refuse_foreign(name)
    return int(hashlib.md5(str(tuple(names)).encode("utf-8"), usedforsecurity=False).hexdigest(), 16) % 2**31


def _refuse_foreign(name: object) -> None:
    if type(name) in (list, tuple):
        for entry in name:  # type: ignore[attr-defined]
            _refuse_foreign(entry)
    elif name is not None and type(name) not in (bool, int, float, str):
        raise TypeError(f"hash arguments are plain Python numbers, text or lists of them, got {type(name).__name__}")
