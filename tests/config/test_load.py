"""A configuration file: its values, options over it, and how it comes back."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest

from fedhpc.config import (
    Limits,
    Plugin,
    RunConfig,
    Section,
    describe_keys,
    diff,
    load,
    load_config,
    other_result,
    parse_yaml,
    to_tree,
    to_yaml,
)
from fedhpc.errors import ConfigError
from tests.config.files import MINIMAL, problem


def test_a_minimal_file_gives_the_defaults(write):
    config = load_config(write(MINIMAL))
    assert (config.rounds, config.seed, config.partition_kind, config.algorithm_name) == (3, 0, "iid", "fedavg")
    assert (config.partition.clients, config.partition.test_fraction) == (4, 0.2)
    assert (config.local.epochs, config.local.steps, config.local.lr) == (1, None, 0.1)
    assert config.model.hidden == (64,)


def test_values_of_the_file_arrive_with_their_types(write):
    config = load_config(
        write(
            "rounds: 7\nseed: 010\npartition: {kind: dirichlet, clients: 5, alpha: 1}\n"
            "algorithm: {name: fedprox, mu: 1e-3, weighting: uniform}\n"
            "local: {lr: 1e-2, steps: 12, clip: .5}\nmodel: {hidden: [32, 16], dtype: float64}\n"
            "data: {transform: {mean: [0, 0.5], flip: true}}\n"
        )
    )
    assert (config.seed, config.partition.alpha, config.algorithm.mu, config.local.lr) == (10, 1.0, 1e-3, 1e-2)
    assert isinstance(config.partition.alpha, float)
    assert (config.local.steps, config.local.epochs, config.local.clip) == (12, None, 0.5)
    assert config.data.transform.mean == (0.0, 0.5)
    assert config.data.transform.flip is True


def test_overrides_win_and_the_last_of_a_key_counts(write):
    config = load_config(
        write(MINIMAL + "local: {lr: 0.5, batch_size: 10}\n"),
        [
            "--local.lr",
            "1e-3",
            "--rounds=5",
            "--local.lr",
            "0.2",
            "--model.hidden",
            "[8, 8]",
            "--model.weights",
            "null",
        ],
    )
    assert (config.local.lr, config.local.batch_size, config.rounds, config.model.hidden) == (0.2, 10, 5, (8, 8))


def test_choosing_another_plugin_keeps_shared_keys_and_drops_the_rest_aloud(write, caplog):
    path = write("rounds: 1\npartition: {kind: dirichlet, clients: 4, alpha: 0.1}\n")
    config = load_config(path, ["--partition.kind", "iid"])
    assert (config.partition_kind, config.partition.clients) == ("iid", 4)
    assert "partition.alpha belongs to dirichlet and is dropped" in caplog.text
    assert "unknown key 'partition.alpha'" in problem(path, "--partition.kind", "iid", "--partition.alpha", "1")
    path = write("rounds: 1\npartition: {kind: dirichlet, clients: 4, alhpa: 0.1}\n")
    assert "unknown key 'partition.alhpa'" in problem(path, "--partition.kind", "iid")


def test_print_config_loads_back_to_an_equal_config(write, tmp_path):
    config = load_config(
        write(MINIMAL), ["--data.root", "no", "--data.dataset", "1e-3", "--local.lr=1e-5", "--model.weights", "null "]
    )
    again = tmp_path / "again.yaml"
    again.write_text(config.to_yaml())
    assert load_config(str(again)) == config
    assert RunConfig.from_dict(config.to_dict()) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert diff(config.to_dict(), load_config(str(again)).to_dict()) == []


def test_diff_names_dotted_keys(write):
    a = load_config(write(MINIMAL)).to_dict()
    b = load_config(write(MINIMAL), ["--local.lr", "0.2", "--algorithm.name", "fedprox"]).to_dict()
    assert diff(a, b) == ["algorithm.mu", "algorithm.name", "algorithm.server_lr", "local.lr"]


def test_seed_place_and_supervision_make_no_other_experiment():
    same = ["seed", "data.root", "device.threads", "checkpoint.every", "on_rank_loss", "aggregation.chunk"]
    assert other_result([*same, "data.transform.flip", "local.lr", "rounds"]) == [
        "data.transform.flip", "local.lr", "rounds"
    ]  # fmt: skip


def test_an_empty_section_takes_its_defaults(write):
    assert load_config(write(MINIMAL + "local:\ncohort:\n")) == load_config(write(MINIMAL))


def test_yaml_1_2_text_stays_text_and_comes_back(tmp_path):
    tree = {
        "a": "no",
        "b": "1e-3",
        "c": "2024-01-01",
        "d": "1:30",
        "e": 1e-5,
        "f": [1, 2.5],
        "g": None,
        "h": "",
        "i": "ü",
    }
    assert parse_yaml(to_yaml(tree), "text") == tree
    assert parse_yaml("x: no\ny: 12:30\nz: 2024-01-01\n", "text") == {"x": "no", "y": "12:30", "z": "2024-01-01"}


def test_every_key_can_be_set_by_an_option_and_is_described(write):
    path = write(MINIMAL)
    text = describe_keys(RunConfig)
    for name, value in to_tree(load_config(path)).items():
        assert f"  {name}" in text
        for key, given in value.items() if isinstance(value, dict) else ():
            if given is not None and not isinstance(given, dict) and key != "epochs":
                load_config(path, [f"--{name}.{key}={given}"])
    assert "local.lr " in text
    assert "algorithm.mu  " in text
    assert "a number, default 0.0001; μ; 0 is FedAvg [fedprox]" in text, "the docstring says what it means"


def test_loading_a_config_imports_neither_torch_nor_mpi_nor_hdf5(write):
    code = (
        "import sys\nfrom fedhpc.config import load_config\n"
        f"for a in ('fedavg', 'fedprox'): load_config({write(MINIMAL)!r}, ['--algorithm.name', a])\n"
        "heavy = {'torch', 'torchvision', 'mpi4py', 'h5py', 'sklearn', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported: {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Timeline(Section):
    """A section a later study might add."""

    tasks: Annotated[int, Limits(at_least=1)] = 1


@dataclass(frozen=True, kw_only=True)
class Study(Section):
    """Another kind of file: a whole run inside, an optional section, a list."""

    algorithms: tuple[str, ...]
    run: RunConfig
    timeline: Timeline | None = None
    other: Annotated[Any, Plugin("fedhpc.federated.algorithms", "name", "ALGORITHM")] = None
    inner: Timeline = field(default_factory=Timeline)


def test_another_kind_of_file_is_only_another_class(write):
    path = write("algorithms: [fedavg, fedprox]\nrun:\n  rounds: 2\n  partition: {kind: iid, clients: 2}\n")
    study = load(Study, path, ["--run.local.lr", "0.3"])
    assert (study.algorithms, study.run.local.lr, study.timeline, study.other) == (
        ("fedavg", "fedprox"),
        0.3,
        None,
        None,
    )
    assert load(Study, write(to_yaml(to_tree(study)))) == study
    chosen = load(Study, path, ["--timeline.tasks", "3", "--other.name", "fedprox", "--other.mu", "2"])
    assert (chosen.timeline, chosen.other.mu) == (Timeline(3), 2.0)
    with pytest.raises(ConfigError, match=r"timeline.tasks must be at least 1, got 0"):
        load(
            Study, write("algorithms: []\nrun: {rounds: 1, partition: {kind: iid, clients: 2}}\ntimeline: {tasks: 0}\n")
        )
    with pytest.raises(ConfigError, match=r"run\.local\.lr must be above 0"):
        load(Study, path, ["--run.local.lr", "0"])


def test_sections_are_frozen(write):
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_config(write(MINIMAL)).local.lr = 3.0  # type: ignore[misc]
