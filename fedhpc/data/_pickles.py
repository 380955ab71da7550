"""Read the pickles of the CIFAR python layout without running anything that is in them."""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np

_ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")


def load_batch(content: bytes) -> dict[str, Any]:
    """Load a pickled dict of numbers, strings, lists and uint8 arrays.

    Every global outside numpy's array rebuilding is refused, and even those names are not numpy's own functions but
    stand-ins below, which accept flat unsigned bytes only.

    Raises:
        ValueError: refused, damaged, or no dict; the message says which.
    """
    try:
        loaded = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except ValueError:
        raise
    except Exception as error:  # damaged pickles raise nearly anything
        raise ValueError(f"damaged pickle ({error or type(error).__name__})") from None
    if not isinstance(loaded, dict):
        raise ValueError(f"holds a {type(loaded).__name__}, expected a dict")
    return {_text(key): value.build() if isinstance(value, _Array) else value for key, value in loaded.items()}


def texts(values: Any) -> list[str]:
    """Return a list of byte or text strings as text."""
    return [_text(value) for value in values]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in _ARRAY_MODULES and name == "_reconstruct":
            return _Array
        if (module, name) == ("numpy", "ndarray"):
            return "ndarray"
        if (module, name) == ("numpy", "dtype"):
            return _DType
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes byte strings for old protocols
            return _encode
        raise ValueError(f"refused: the pickle asks for {module}.{name}, which could run code")


class _Array:
    """An array that is only described; `build` makes it from its bytes."""

    def __init__(self, *_: Any) -> None:
        self._shape: tuple[int, ...] = ()
        self._data = b""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _DType) or dtype.code not in ("u1", "|u1") or fortran or not isinstance(data, bytes):
            raise ValueError("refused: an array that is not plain unsigned bytes")
        if not all(isinstance(n, int) and n >= 0 for n in shape) or math.prod(shape) != len(data):
            raise ValueError(f"array of shape {shape} with {len(data)} bytes")
        self._shape, self._data = tuple(shape), data

    def build(self) -> np.ndarray:
        return np.frombuffer(self._data, np.uint8).reshape(self._shape)


class _DType:
    def __init__(self, code: Any = "", *_: Any) -> None:
        self.code = _text(code)

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment say nothing about single bytes."""


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"refused: a string in encoding {encoding}")
    return text.encode("latin1")


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
