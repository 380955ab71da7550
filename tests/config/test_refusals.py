"""What a configuration may not say, and how it is told: a line that names place, key and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedhpc.commands._configs import load_run
from fedhpc.config import load_config
from fedhpc.errors import ConfigError
from tests.config.files import MINIMAL, problem


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("local: {lrr: 0.1}", ["run.yaml: unknown key 'local.lrr'", "did you mean 'local.lr'?", "batch_size"]),
        ("lr: 0.1", ["unknown key 'lr'", "did you mean 'local.lr'?"]),
        ("locals: {lr: 0.1}", ["unknown key 'locals'", "did you mean 'local'?"]),
        (
            "data: {transform: {flop: true}}",
            ["unknown key 'data.transform.flop'", "did you mean 'data.transform.flip'?"],
        ),
        ("1: 2", ["unknown key '1'"]),
        ("local: {lr: fast}", ["local.lr must be a number, got 'fast'"]),
        ("local: {batch_size: 1.5}", ["local.batch_size must be an integer, got 1.5"]),
        ("local: {batch_size: 1e2}", ["local.batch_size must be an integer"]),
        ("local: {batch_size: true}", ["local.batch_size must be an integer, got True"]),
        ("local: {lr: true}", ["local.lr must be a number, got True"]),
        ("local: {lr: .nan}", ["local.lr must be finite"]),
        ("local: {lr: .inf}", ["local.lr must be finite"]),
        ("local: {lr: 1e999}", ["local.lr must be finite"]),
        ("local: {lr: 0}", ["run.yaml: local.lr must be above 0, got 0"]),
        ("local: {lr: null}", ["local.lr must be a number, got null"]),
        ("local: {lr: [0.1]}", ["local.lr must be a number"]),
        ("local: {momentum: 1}", ["local.momentum must be at least 0 and below 1"]),
        ("local: {optimizer: rmsprop}", ["local.optimizer must be one of sgd, adam, got 'rmsprop'"]),
        ("local: {epochs: 1, steps: 2}", ["local.steps (2) and epochs (1) exclude each other"]),
        ("local: {objective: erms}", ["local.objective must be one of", "did you mean 'erm'?"]),
        ("local: 3", ["local is a section", "got 3"]),
        ("model: resnet18", ["model is a section", "got 'resnet18'; write model.name resnet18"]),
        ("algorithm: [fedavg]", ["algorithm is a section", "'fedavg'"]),
        ("algorithm: fedagv", ["algorithm.name must be one of", "did you mean 'fedavg'"]),
        ("algorithm: {name: fedavgg}", ["algorithm.name must be one of", "did you mean 'fedavg'?"]),
        ("algorithm: {name: [fedavg]}", ["algorithm.name must be one of"]),
        (
            "algorithm: {name: fedavg, mu: 1}",
            ["unknown key 'algorithm.mu'", "algorithm has: name, server_lr, weighting"],
        ),
        ("algorithm: {name: fedprox, mu: -1}", ["run.yaml: algorithm.mu must be at least 0, got -1"]),
        ("algorithm: {weighting: equal}", ["algorithm.weighting must be one of uniform, samples"]),
        ("model: {name: transformer}", ["model.name must be one of", "mlp"]),
        ("model: {hidden: [8, 0]}", ["model.hidden must be at least 1, got 0"]),
        ("model: {hidden: 8}", ["model.hidden must be a list of integers, got 8; write [8]"]),
        ("generalize: {test_envs: 3}", ["generalize.test_envs must be a list of integers, got 3; write [3]"]),
        ("model: {weights: 5}", ["model.weights must be text or null, got 5"]),
        ("cohort: {size: 2, fraction: 0.5}", ["cohort.size (2) and fraction (0.5) exclude each other"]),
        ("evaluate: {target_accuracy: 90}", ["evaluate.target_accuracy must be above 0 and at most 1, got 90"]),
        ("device: {name: gpu}", ["device.name must be one of auto, cpu, cuda, cuda:N, got 'gpu'"]),
        ("data: {dataset: nothing_known}", ["data.dataset must be one of", "digits"]),
        (
            "data: {transform: {mean: [0, 0], std: [1]}}",
            ["data.transform.std must have as many numbers as mean (2), got 1"],
        ),
        ("data: {transform: {flip: 1}}", ["data.transform.flip must be true or false, got 1"]),
        ("seed: -1", ["seed must be at least 0"]),
        ("seed: 99999999999999999999999", ["seed must be at least 0 and below"]),
        ("checkpoint: {keep: 0}", ["checkpoint.keep must be at least 1, got 0"]),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_is_allowed(write, text, parts):
    message = problem(write(MINIMAL + text + "\n"))
    assert "run.yaml: " in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("partition: {kind: iid, clients: 2}", "required key 'rounds' is missing (an integer)"),
        ("rounds: 1", "required key 'partition.kind' is missing (one of "),
        ("rounds: 1\npartition: {clients: 2}", "required key 'partition.kind' is missing"),
        ("rounds: 1\npartition: {kind: iid}", "required key 'partition.clients' is missing (an integer)"),
        ("rounds: 0\npartition: {kind: iid, clients: 1}", "rounds must be at least 1, got 0"),
        ("rounds: 1\npartition: {kind: iid, clients: 0}", "partition.clients"),
        ("rounds: 1\npartition: {kind: idd, clients: 1}", "partition.kind must be one of"),
    ],
)
def test_what_is_required_is_named(write, text, part):
    assert part in problem(write(text))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("- 1\n- 2\n", "holds a list, not a mapping"),
        ("just text", "holds a str, not a mapping"),
        ("rounds: [1, 2\n", "line 2"),
        ("rounds: 1\nrounds: 2\n", "line 2, column 1: key 'rounds' stands twice"),
        ("local: {lr: 1, lr: 2}\n", "key 'lr' stands twice"),
        ("a: 1\n---\nb: 2\n", "single document"),
        ("rounds: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
        ("rounds: *nowhere\n", "undefined alias"),
        ("? [a, b]\n: 1\n", "found unhashable key"),
        ("? {a: b}\n: 1\n", "run.yaml:"),
        ("rounds: " + "[" * 5000 + "\n", "run.yaml"),
        ("rounds: " + "9" * 5000 + "\n", "not YAML"),
        ("rounds: \x00\n", "not YAML"),
        ("\trounds: 1\n", "line 1"),
        (b"rounds: \xff\xfe\n", "is not UTF-8 (byte 8)"),
        (b"\xff\xfer\x00", "is not UTF-8"),
        (b"# " + b"x" * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_what_is_not_one_yaml_mapping_is_refused_in_a_line(write, text, part):
    assert part in problem(write(text))


def test_unreadable_files_are_named(tmp_path):
    assert "no such configuration file" in problem(str(tmp_path / "absent.yaml"))
    assert "cannot be read" in problem(str(tmp_path))
    assert "cannot be read" in problem("a\0b")


def test_an_alias_bomb_stays_a_short_message(write):
    levels = "".join(f"a{i}: &a{i} [{', '.join(['*a' + str(i - 1)] * 9)}]\n" for i in range(1, 30))
    assert "unknown key 'a0'" in problem(write("a0: &a0 [x]\n" + levels))
    nested = "local: {lr: [&b0 [x], " + ", ".join(f"&b{i} [*b{i - 1}, *b{i - 1}]" for i in range(1, 12)) + "]}\n"
    assert "local.lr must be a number" in problem(write(MINIMAL + nested))


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["--local.lrr", "1"], "command line: unknown key 'local.lrr' (did you mean 'local.lr'?)"),
        (["--nothing.at.all", "1"], "command line: unknown key 'nothing'"),
        (["--rounds.x", "1"], "command line: --rounds.x: 'rounds' is not a section"),
        (["--local.lr.x", "1"], "command line: --local.lr must be a number"),
        (["--local.lr"], "command line: --local.lr needs a value"),
        (["--local.lr", "--rounds", "2"], "command line: --local.lr needs a value"),
        (["local.lr=2"], "command line: 'local.lr=2' is not an option"),
        (["--local.lr", "-1"], "command line: --local.lr must be above 0, got -1"),
        (["--local.lr", "fast"], "command line: --local.lr must be a number, got 'fast'"),
        (["--local", "{lr: 1}"], "command line: --local is a section"),
        (["--rounds", "1.5"], "command line: --rounds must be an integer, got '1.5'"),
        (["--rounds="], "command line: --rounds must be an integer, got ''"),
        (["--algorithm.name", "feddin"], "command line: --algorithm.name must be one of"),
        (["--partition.clients", "0"], "command line: --partition.clients"),
        (["--partition.test_fraction", "1.5"], "command line: --partition.test_fraction"),
    ],
)
def test_a_wrong_option_names_the_command_line(write, overrides, part):
    assert part in problem(write(MINIMAL), *overrides)


def test_data_that_are_not_embedded_need_a_root(write):
    assert load_config(write(MINIMAL + "data: {dataset: anything, root: somewhere}\n")).data.root == "somewhere"


def test_a_full_gradient_has_no_meaning_for_other_objectives_than_erm(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("rounds: 1\npartition: {kind: iid, clients: 2}\nalgorithm: {name: scaffold, option: 1}\n")
    assert load_config(str(file), []).algorithm.option == 1
    for option, value in (("personalize.method", "maml"), ("local.objective", "irm")):
        said = problem(str(file), f"--{option}", value)
        assert f"algorithm.option 1 takes the gradient on all local samples, which {option} '{value}' does not" in said
    medical = "rounds: 3\nscenario: naive\nrecipe: mixup\nlocal: {steps: 2, momentum: 0}\n"
    file.write_text(medical + "algorithm: {name: scaffold, option: 1}\n")
    with pytest.raises(ConfigError, match=r"which recipe mixup does not define; use option 2"):
        load_run(str(file))
