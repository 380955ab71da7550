"""The lock between jobs: waited for while its owner may live, and not kept by the dead."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from fedhpc.sweep import lock
from fedhpc.sweep.lock import locked


@pytest.mark.parametrize("left", [json.dumps({"machine": "another", "started": "1", "pid": 1}), "{", ""])
def test_the_lock_of_a_silent_owner_is_taken_over_after_a_while(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another machine, or killed before it could say who it was."""
    monkeypatch.setattr(lock, "_STALE_AFTER", 0.1)
    (tmp_path / "lock").write_text(left, encoding="utf-8")
    with locked(tmp_path / "lock"):
        assert json.loads((tmp_path / "lock").read_text(encoding="utf-8"))["token"]
    assert not list(tmp_path.iterdir())


def test_a_living_owner_is_waited_for(tmp_path: Path) -> None:
    entered = threading.Event()

    def second() -> None:
        with locked(tmp_path / "lock"):
            entered.set()

    waits = threading.Thread(target=second)
    with locked(tmp_path / "lock"):
        waits.start()
        assert not entered.wait(0.2)
    assert entered.wait(10)
    waits.join()
    with pytest.raises(FileNotFoundError), locked(tmp_path / "absent" / "lock"):
        pass


def test_a_lock_put_away_by_mistake_is_given_back(tmp_path: Path) -> None:
    """Two that wait for a dead owner: the second would remove the lock of the first."""
    (tmp_path / "lock").write_text('"first"', encoding="utf-8")
    lock._put_away(tmp_path / "lock", '"dead"')
    assert [p.read_text(encoding="utf-8") for p in tmp_path.iterdir()] == ['"first"']
