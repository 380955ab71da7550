"""Who may import whom: the contracts in setup.cfg bite, and cheap modules stay cheap."""

from __future__ import annotations

import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

DEAR = ("torch", "torchvision", "sklearn", "PIL", "h5py", "mpi4py", "matplotlib")
CHEAP = [  # modules, and whole packages, that every command, a login node or a thousand ranks import
    "config",
    "seeding",
    "timing",
    "registry",
    "errors",
    "cli",
    "comm",
    "data.schema",
    "data.shards",
    "data.writer",
    "data.table",
    "data.partition",
    "data.partitions.*",
    "data.sources.*",
    "federated.algorithm",
    "federated.algorithms.*",
    "runs.records",
    "runs.rundir",
    "report.*",
    "sweep.status",
    "sweep.stored",
]
PROBE = """
import importlib, sys
seen = set()
for module in sys.argv[2:]:
    importlib.import_module(module)
    loaded = {name for name in sys.argv[1].split(",") if name in sys.modules} - seen
    seen |= loaded
    if loaded:
        print(f"importing {module} loads {', '.join(sorted(loaded))}")
"""


def expand(pattern: str) -> list[str]:
    """Module names for one entry of CHEAP."""
    name = f"fedhpc.{pattern.removesuffix('.*')}"
    if not pattern.endswith(".*"):
        return [name]
    folder = REPOSITORY / name.replace(".", "/")
    return [name, *(f"{name}.{m.name}" for m in pkgutil.iter_modules([str(folder)]))]


@pytest.mark.parametrize("pattern", CHEAP)
def test_importing_a_cheap_module_loads_no_dear_library(pattern: str) -> None:
    modules = [m for m in expand(pattern) if not m.endswith(("plots", "drawing"))]  # loaded to draw
    probe = [sys.executable, "-c", PROBE, ",".join(DEAR), *modules]
    done = subprocess.run(probe, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


STARTS_PROCESSES = re.compile(
    r"\b(DataLoader|ProcessPoolExecutor|os\.fork\w*|multiprocessing\.(?!get_start_method)\w+|from multiprocessing)\b"
)


def test_nothing_forks_a_process_that_has_mpi() -> None:
    """Loaders that fork under MPI crash or corrupt data in silence; here samples are mapped, or decoded by threads."""
    files = sorted((REPOSITORY / "fedhpc").rglob("*.py"))
    found = {f.name: m[0] for f in files if (m := STARTS_PROCESSES.search(f.read_text(encoding="utf-8")))}
    assert len(files) > 100
    assert found == {}
    assert STARTS_PROCESSES.search("multiprocessing.Pool(4)")
    assert STARTS_PROCESSES.search("loader = DataLoader(data)")


@pytest.fixture
def copy_of_the_package(tmp_path: Path) -> Path:
    shutil.copytree(REPOSITORY / "fedhpc", tmp_path / "fedhpc", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "setup.cfg", tmp_path)
    (tmp_path / "tests").mkdir()
    shutil.copy(REPOSITORY / "tests/import_contracts.py", tmp_path / "tests")
    return tmp_path


def lint(folder: Path, contract: str) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("import-linter is not installed: pip install -e .[dev]")
    command = [tool, "--no-logo", "--no-cache", "--contract", contract]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("contract", "file", "offence"),
    [
        ("layers", "data/table.py", "import fedhpc.train"),
        ("layers", "models/base.py", "import fedhpc.data.table"),
        ("layers", "elsewhere.py", ""),
        ("side-rooms", "runs/__init__.py", "import fedhpc.federated"),
        ("comm", "train/solver.py", "import fedhpc.comm"),
        ("mpi4py", "federated/engine.py", "import mpi4py.MPI"),
        ("h5py", "report/__init__.py", "import h5py"),
        ("yaml", "train/solver.py", "import yaml"),
        ("matplotlib", "report/tables.py", "from matplotlib import pyplot"),
        ("jinja2", "report/tables.py", "import jinja2"),
        ("report", "report/__init__.py", "import fedhpc.train"),
        ("report", "runs/records.py", "import torch"),
        ("launch", "launch/script.py", "import fedhpc.comm.world"),
        ("plugins", "federated/algorithms/other.py", "import fedhpc.federated.algorithms.fedavg"),
        ("plugins", "models/hem_cnn.py", "import fedhpc.models.mlp"),
        ("plugins", "data/sources/mnist.py", "import fedhpc.data.sources.cifar10"),
        ("plugins", "data/partitions/iid.py", "import fedhpc.data.partitions.dirichlet"),
        ("plugins", "commands/other.py", "import fedhpc.commands.run"),
        ("plugins", "models/_resnet.py", "import fedhpc.models.resnet18"),
        ("plugins", "objectives/other.py", "import fedhpc.objectives.erm"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(
    copy_of_the_package: Path, contract: str, file: str, offence: str
) -> None:
    path = copy_of_the_package / "fedhpc" / file
    with path.open("a") as source:
        source.write(f"\n\ndef _offence():\n    {offence or 'pass'}\n")
    if file.startswith("runs/records"):  # the chain from report to torch has to pass through records
        (copy_of_the_package / "fedhpc/report/__init__.py").write_text("import fedhpc.runs.records\n")
    done = lint(copy_of_the_package, contract)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout or "exhaustive" in done.stdout.lower()
