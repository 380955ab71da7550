"""The benchmarks that build configurations still can: nothing else starts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

BENCHES = sorted(path.name for path in (REPOSITORY / "bench").glob("*.py"))


@pytest.mark.parametrize("name", BENCHES)
def test_every_benchmark_shows_its_help(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "bench" / name), "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout or name == "floor.py", "floor is a module of the others"


def test_the_medical_benchmark_measures(tmp_path: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "bench" / "medical.py"), "--size", "32", "--rounds", "1"]
    file = tmp_path / "figures.json"
    done = subprocess.run([*command, "--json", str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "exam_images_per_distinct_image" in file.read_text()
