from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedhpc.errors import FedhpcError
from fedhpc.runs.records import Record, RecordWriter, read_records


def accuracy(round_: int, value: float | None = 0.5, **where) -> Record:
    return Record("client_accuracy", value, "fraction", round_, 1.25 * round_, **where)


def test_records_come_back_as_they_were_written(tmp_path):
    records = [
        accuracy(0),
        accuracy(1, 1 / 3, client=7, environment=2, task=0, model="broadcast_next", rank=3),
        Record("bytes_moved", 10**12, "bytes", 1, 0.0),
        accuracy(2, None),
    ]
    with RecordWriter(tmp_path / "metrics.jsonl") as writer:
        writer.write(records[0])
        writer.write_all(records[1:])
    assert list(read_records(tmp_path / "metrics.jsonl")) == records


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_written_as_null(tmp_path, value):
    with RecordWriter(tmp_path / "m.jsonl") as writer:
        writer.write(accuracy(1, value))
    assert '"value":null' in (tmp_path / "m.jsonl").read_text()
    assert [r.value for r in read_records(tmp_path / "m.jsonl")] == [None]


def test_nothing_is_in_the_file_before_a_flush_and_all_of_it_after(tmp_path):
    path = tmp_path / "m.jsonl"
    writer = RecordWriter(path)
    writer.write(accuracy(1))
    assert path.read_bytes() == b""
    writer.flush()
    assert path.read_bytes().endswith(b"}\n")
    assert writer.offset() == path.stat().st_size
    writer.close()
    writer.close()


def test_opening_again_appends(tmp_path):
    for round_ in range(3):
        with RecordWriter(tmp_path / "m.jsonl") as writer:
            writer.write(accuracy(round_))
    assert [r.round for r in read_records(tmp_path / "m.jsonl")] == [0, 1, 2]


def test_a_resumed_run_keeps_the_superseded_tail_elsewhere(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with RecordWriter(path) as writer:
        writer.write_all([accuracy(0), accuracy(1)])
        offset = writer.offset()
        writer.write_all([accuracy(2, 0.1), accuracy(3, 0.2)])
    with RecordWriter(path) as writer:
        assert writer.truncate_to(offset) == tmp_path / "metrics.superseded-1.jsonl"
        writer.write(accuracy(2, 0.9))
    assert [(r.round, r.value) for r in read_records(path)] == [(0, 0.5), (1, 0.5), (2, 0.9)]
    assert [r.round for r in read_records(tmp_path / "metrics.superseded-1.jsonl")] == [2, 3]
    with RecordWriter(path) as writer:
        assert writer.truncate_to(writer.offset()) is None
        assert writer.truncate_to(0) == tmp_path / "metrics.superseded-2.jsonl"
    assert list(read_records(path)) == []
    assert len(list(read_records(tmp_path / "metrics.superseded-2.jsonl"))) == 3


def test_a_checkpoint_that_does_not_fit_the_file_is_refused_and_nothing_is_lost(tmp_path):
    path = tmp_path / "m.jsonl"
    with RecordWriter(path) as writer:
        writer.write(accuracy(0))
        size = writer.offset()
        for wrong in (size + 1, size - 1, 1):
            with pytest.raises(FedhpcError, match=r"m\.jsonl.*checkpoint"):
                writer.truncate_to(wrong)
    assert path.stat().st_size == size
    assert os.listdir(tmp_path) == ["m.jsonl"]


def test_a_torn_last_line_is_passed_over(tmp_path):
    path = tmp_path / "m.jsonl"
    line = accuracy(0).to_line()
    for cut in range(1, len(line)):
        path.write_text(f"{line}\n{line[:cut]}")
        assert len(list(read_records(path))) == 1
    path.write_bytes(f"{line}\n".encode() + b'{"what":"\xc3')
    assert len(list(read_records(path))) == 1


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ("3", "is not a JSON object"),
        ('{"what":"a","value":1,"unit":"u","seconds":0}', "has no 'round'"),
        ('{"what":"a","unit":"u","round":1,"seconds":0}', "has no 'value'"),
        ('{"what":"a","value":"x","unit":"u","round":1,"seconds":0}', "'value' is 'x'"),
        ('{"what":"a","value":true,"unit":"u","round":1,"seconds":0}', "'value' is True"),
        ('{"what":"a","value":1,"unit":"u","round":1.5,"seconds":0}', "'round' is 1.5"),
        ('{"what":"a","value":1,"unit":"u","round":1,"seconds":null}', "'seconds' is None"),
        ('{"what":"a","value":1,"unit":"u","round":1,"seconds":0,"client":"b"}', "'client' is 'b'"),
        ('{"what":"a","value":NaN,"unit":"u","round":1,"seconds":0}', "NaN is not JSON"),
        ('{"what":"a","value":1e999,"unit":"u","round":1,"seconds":0}', "'value' is out of range"),
        ('{"what":"a","value":1,"unit":"u","round":1' + "0" * 400 + ',"seconds":0}', "'round' is out of range"),
        ("[" * 100_000, "line 2"),
        ("\0" * 4096, "is not JSON"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, part):
    path = tmp_path / "m.jsonl"
    good = accuracy(0).to_line()
    path.write_text(f"{good}\n{line}\n{good}\n")
    reading = read_records(path)
    assert next(reading).round == 0
    with pytest.raises(FedhpcError, match=r"m\.jsonl: line 2") as caught:
        next(reading)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 300


def test_keys_of_a_later_version_are_left_out(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text(accuracy(4).to_line()[:-1] + ',"later":[1]}\n')
    assert [r.round for r in read_records(path)] == [4]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FedhpcError, match=r"m\.jsonl: cannot be read: No such file"):
        list(read_records(tmp_path / "m.jsonl"))
    with pytest.raises(FedhpcError, match="cannot be written: No such file"):
        RecordWriter(tmp_path / "absent" / "m.jsonl")


def test_a_full_disk_leaves_only_whole_lines(tmp_path: Path):
    path = tmp_path / "m.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    writer = RecordWriter(path)
    writer.write(accuracy(0))
    size = writer.offset()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30, before[1]))
        writer.write(accuracy(1))
        with pytest.raises(FedhpcError, match=r"m\.jsonl: cannot be written: File too large"):
            writer.flush()
        assert path.stat().st_size == size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    writer.close()
    assert [r.round for r in read_records(path)] == [0, 1]


def test_reading_records_needs_no_torch():
    code = "import sys, fedhpc.runs.records; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
