"""`fedhpc prepare`: raw files of a dataset to a dataset folder, or a list of what is wrong with them."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np

from fedhpc import registry
from fedhpc.data._images import fit as fitted
from fedhpc.data._staging import refuse_existing
from fedhpc.data.schema import BadFile, Manifest, shown
from fedhpc.data.shards import ShardStore
from fedhpc.data.sources.base import BadSampleError, RawDataset, RawItem, ScanOptions, Source
from fedhpc.data.writer import SHARD_BYTES, ShardWriter
from fedhpc.errors import ConfigError, DataRequestError, DatasetError

SOURCES = "fedhpc.data.sources"
LAYOUTS = ("auto", "class", "environment")
INTERPOLATIONS = ("bilinear", "bicubic")

_CHUNK = 32
_MAX_WORKERS = 8
_MAX_SHOWN = 20

Decoded = tuple[RawItem, np.ndarray | BadFile]


def prepare(
    name: str,
    raw: str | Path | None,
    out: str | Path,
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    on_bad: Literal["stop", "skip"] = "stop",
    layout: str = "auto",
    seed: int = 0,
    interpolation: str = "bilinear",
    fit: Literal["squeeze", "crop"] | None = None,
    shard_bytes: int = SHARD_BYTES,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Make a dataset folder.

    Args:
        name: of the source, a file in `fedhpc/data/sources`.
        raw: its raw files; None for an embedded source.
        out: folder to make; refused if it holds anything.
        size: height and width of every image (one number: square); needed where the raw images differ.
        channels: 1 or 3; None leaves it to the source.
        on_bad: `stop` writes nothing if any file is bad, `skip` leaves bad files out and records them.
        layout: how folders are read, where a source has a choice.
        seed: of what a source draws at random.
        interpolation: of images that a source rotates: `bilinear` or `bicubic`.
        fit: how images come to `size`: `squeeze` changes their proportions, `crop` cuts the centre out; None leaves it
            to the source.
        shard_bytes: pixels per shard at most.
        workers: decoding threads; None takes the cores of this process, eight at most.
        progress: called with (samples seen, samples in all).

    Returns:
        The manifest of the finished folder.

    Raises:
        DatasetError: bad or missing raw files (the first 20 are named, more in `OUT.bad.txt`), or no place to write.
        ConfigError: an argument out of range.
    """
    options = _checked_options(on_bad, ScanOptions(channels, layout, seed, interpolation))
    _check_positive(shard_bytes=shard_bytes, workers=1 if workers is None else workers)
    shape = _checked_size(size)
    source: Source = registry.load(SOURCES, name).SOURCE
    refuse_existing(Path(out))
    dataset = source.scan(None if raw is None else Path(raw), options)
    dataset = replace(dataset, fit=_checked_fit(fit) or dataset.fit)
    if shape and dataset.fit == "crop":
        how = "images in proportion, the centre of 256/224 of the size (--fit crop)"
        dataset = replace(dataset, notes=(*dataset.notes, how))
    run = _Preparation(source.name, dataset, Path(out), on_bad == "skip", shard_bytes)
    stream = _decoded(dataset, shape, channels, workers or _default_workers())
    return run.write(stream, shape, progress)


def verify(out: str | Path) -> list[str]:
    """Check a dataset folder completely: structure, sizes, ranges and every checksum.

    Returns:
        One line per problem; empty if it is sound.

    Raises:
        DataRequestError: there is no dataset.
    """
    try:
        return ShardStore.open(out).verify()
    except DataRequestError:
        raise
    except DatasetError as error:
        return [str(error)]


class _Preparation:
    """One run of `prepare`: counts what it sees, writes while nothing is wrong."""

    def __init__(self, name: str, dataset: RawDataset, out: Path, skip: bool, shard_bytes: int) -> None:
        self._name, self._dataset, self._out, self._skip, self._shard_bytes = name, dataset, out, skip, shard_bytes
        self._bad = list(dataset.bad)
        self._labels: Counter[int] = Counter()
        self._prints: list[int] = []
        self._kept: list[RawItem] = []

    def write(
        self, stream: Iterator[Decoded], size: tuple[int, int] | None, progress: Callable[[int, int], None] | None
    ) -> Manifest:
        writer: ShardWriter | None = None
        first: RawItem | None = None
        with ExitStack() as stack:
            for seen, (item, image) in enumerate(stream, 1):
                if progress is not None:
                    progress(seen, len(self._dataset.items))
                if isinstance(image, BadFile):
                    self._bad.append(image)
                    continue
                if writer is None:
                    writer, first, shape = stack.enter_context(self._writer(image.shape)), item, image.shape
                if image.shape != shape:
                    raise DatasetError(_different_sizes(first, shape, item, image.shape))
                if self._skip or not self._bad:
                    self._add(writer, item, image)
            self._judge(writer is None)
            assert writer is not None
            writer.describe(skipped=self._bad, notes=self._notes())
        assert writer.manifest is not None
        return writer.manifest

    def _writer(self, shape: tuple[int, ...]) -> ShardWriter:
        return ShardWriter(
            self._out,
            name=self._name,
            classes=self._dataset.classes,
            environments=self._dataset.environments,
            shape=(shape[0], shape[1], shape[2]),
            expected=len(self._dataset.items),
            pixel_max=self._dataset.pixel_max,
            attributes=self._dataset.attributes,
            shard_bytes=self._shard_bytes,
        )

    def _add(self, writer: ShardWriter, item: RawItem, image: np.ndarray) -> None:
        writer.add(
            image,
            label=item.label,
            environment=item.environment,
            split=item.split,
            path=item.path,
            attributes=item.attributes,
        )
        self._labels[item.label] += 1
        self._kept.append(item)
        self._prints.append(int.from_bytes(blake2b(image.tobytes(), digest_size=8).digest(), "little"))

    def _judge(self, nothing_decoded: bool) -> None:
        if self._bad and not self._skip:
            raise DatasetError(
                _bad_list(self._bad, "no dataset was written; mend them or use --on-bad skip", self._out)
            )
        if nothing_decoded:
            told = "; ".join(self._dataset.notes)
            message = f"{self._name}: no samples found" + (f" ({told})" if told else "")
            raise DatasetError(_bad_list(self._bad, message, self._out) if self._bad else message)

    def _notes(self) -> list[str]:
        notes = list(self._dataset.notes)
        empty = [shown(c) for i, c in enumerate(self._dataset.classes) if not self._labels[i]]
        if empty:
            notes.append(f"classes without a sample keep their index: {', '.join(empty)}")
        if self._bad:
            notes.append(f"{len(self._bad)} bad files were left out")
        return notes + self._duplicates()

    def _duplicates(self) -> list[str]:
        prints = np.asarray(self._prints, dtype=np.uint64)
        order = np.argsort(prints, kind="stable")
        same = np.flatnonzero(prints[order][1:] == prints[order][:-1])
        if not len(same):
            return []
        pairs = [(self._kept[order[i]], self._kept[order[i + 1]]) for i in same]
        conflicts = [pair for pair in pairs if pair[0].label != pair[1].label]
        a, b = (conflicts or pairs)[0]
        return [
            f"{len(pairs)} samples have the same pixels as another, {len(conflicts)} of them under another label, "
            f"e.g. {shown(a.path)} and {shown(b.path)}"
        ]


def _decoded(
    dataset: RawDataset, size: tuple[int, int] | None, channels: int | None, workers: int
) -> Iterator[Decoded]:
    """Decode in order; several threads work a bounded number of chunks ahead."""

    def decode_chunk(items: Sequence[RawItem]) -> list[Decoded]:
        return [(item, _decode_one(dataset, item, size, channels)) for item in items]

    chunks = (dataset.items[i : i + _CHUNK] for i in range(0, len(dataset.items), _CHUNK))
    if workers == 1:
        for chunk in chunks:
            yield from decode_chunk(chunk)
        return
    pending: deque[Future[list[Decoded]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for chunk in chunks:
                pending.append(pool.submit(decode_chunk, chunk))
                if len(pending) > 2 * workers:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _decode_one(
    dataset: RawDataset, item: RawItem, size: tuple[int, int] | None, channels: int | None
) -> np.ndarray | BadFile:
    try:
        return fitted(dataset.decode(item), size, channels, dataset.fit)
    except BadSampleError as error:
        return BadFile(item.path, str(error))
    except OSError as error:
        return BadFile(item.path, error.strerror or str(error))


def _default_workers() -> int:
    return min(_MAX_WORKERS, len(os.sched_getaffinity(0)))


def _checked_options(on_bad: str, options: ScanOptions) -> ScanOptions:
    if on_bad not in ("stop", "skip"):
        raise ConfigError(f"on_bad is '{on_bad}', allowed are stop and skip")
    if options.channels not in (None, 1, 3):
        raise ConfigError(f"channels is {options.channels}, allowed are 1 (gray) and 3 (RGB)")
    if options.layout not in LAYOUTS:
        raise ConfigError(f"layout is '{options.layout}', allowed are {', '.join(LAYOUTS)}")
    if options.interpolation not in INTERPOLATIONS:
        raise ConfigError(f"interpolation is '{options.interpolation}', allowed are {', '.join(INTERPOLATIONS)}")
    if not 0 <= options.seed < 2**63:
        raise ConfigError(f"seed is {options.seed}, allowed are 0 to 2^63 - 1")
    return options


def _checked_fit(fit: Literal["squeeze", "crop"] | None) -> Literal["squeeze", "crop"] | None:
    if fit not in (None, "squeeze", "crop"):
        raise ConfigError(f"fit is '{fit}', allowed are squeeze and crop")
    return fit


def _check_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ConfigError(f"{name} is {number}, expected at least 1")


def _checked_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    if not (1 <= height <= 4096 and 1 <= width <= 4096):
        raise ConfigError(f"size is {height}x{width}, allowed are 1 to 4096 pixels a side")
    return height, width


def _different_sizes(first: RawItem | None, shape: tuple[int, ...], other: RawItem, found: tuple[int, ...]) -> str:
    assert first is not None
    return (
        f"images differ in size: {shown(first.path)} is {shape[0]}x{shape[1]} (height x width), "
        f"{shown(other.path)} is {found[0]}x{found[1]}; give --size"
    )


def _bad_list(bad: Sequence[BadFile], remedy: str, out: Path) -> str:
    """The first bad files; where there are more, a file beside `out` takes all."""
    lines = [f"  {entry}" for entry in bad[:_MAX_SHOWN]]
    more = []
    if len(bad) > _MAX_SHOWN:
        file = out.absolute().with_name(f"{out.absolute().name}.bad.txt")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{entry}\n" for entry in bad), encoding="utf-8", errors="backslashreplace")
            where = f"; all are in {shown(str(file))}"
        except OSError as error:
            where = f" ({file.name} with all of them can't be written: {error.strerror})"
        more = [f"  ... and {len(bad) - _MAX_SHOWN} more{where}"]
    return "\n".join([f"{len(bad)} bad file{'s' if len(bad) > 1 else ''}; {remedy}", *lines, *more])
