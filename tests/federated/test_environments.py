"""Held-out environments in a federation: who trains on what, what is asked, and the three criteria over runs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhpc.commands._domains import check_environments, setting_of, split_of, with_split
from fedhpc.config import RunConfig, plan_study
from fedhpc.data.environment_batches import ClientEnvironmentBatches
from fedhpc.data.partition import HOLDOUT, Partition
from fedhpc.data.stores import open_store
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError
from fedhpc.report.federations import BEST_OF_ALL, federated_results, read_federations
from fedhpc.report.selected import selected_jobs

REPOSITORY = Path(__file__).resolve().parents[2]
SMOKE = REPOSITORY / "configs" / "smoke" / "domains.yaml"
SHORT = ["--rounds", "2", "--local.steps", "2", "--checkpoint.every", "0", "--model.hidden", "[8]"]


@pytest.fixture(scope="module")
def table() -> SampleTable:
    return open_store("rotated_digits", None).table


def fedhpc(*words: object) -> str:
    """Run the command in a process of its own; returns what it printed."""
    command = [sys.executable, "-m", "fedhpc", *map(str, words)]
    done = subprocess.run(command, cwd=REPOSITORY, text=True, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def config(**changes: Any) -> RunConfig:
    tree: dict[str, Any] = {
        "rounds": 2,
        "data": {"dataset": "rotated_digits"},
        "partition": {"kind": "by_environment"},
        "generalize": {"test_envs": [1]},
    }
    return RunConfig.from_dict({**tree, **changes})


def test_no_client_has_a_sample_of_a_held_out_environment(table: SampleTable) -> None:
    run = config()
    seen = with_split(run, table)
    assert (seen.split[table.environment == 1] == HOLDOUT).all()
    partition = run.partition.split(seen, run.seed)
    owned = [set(table.environment[rows]) for rows in (*partition.train, *partition.test)]
    assert owned == [{0}, {2}, {3}] * 2
    for client, environment in enumerate((0, 2, 3)):
        split = split_of(run, table)[environment]
        assert sorted(split.inside) == partition.train[client].tolist(), "the trial's split, not the partition's own"
        assert sorted(split.outside) == partition.test[client].tolist()


@pytest.mark.parametrize("kind", ["iid", "dirichlet"])
def test_other_partitions_leave_it_out_as_well(table: SampleTable, kind: str) -> None:
    run = config(partition={"kind": kind, "clients": 4})
    partition = run.partition.split(with_split(run, table), run.seed)
    assert {1} & set(table.environment[np.concatenate([*partition.train, *partition.test])]) == set()


def test_clients_can_hold_pieces_of_several_environments(table: SampleTable) -> None:
    run = config(partition={"kind": "by_environment", "clients_per_environment": 2, "environments_per_client": 2})
    partition = run.partition.split(with_split(run, table), run.seed)
    held = [sorted({int(e) for e in table.environment[rows]}) for rows in partition.train]
    assert held == [[0, 2], [0, 2], [2, 3], [2, 3], [0, 3], [0, 3]]
    everything = np.concatenate([*partition.train, *partition.test])
    assert len(everything) == len(set(everything)) == (table.environment != 1).sum()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"generalize": {"test_envs": [4]}}, "environments 0 to 3"),
        ({"generalize": {"test_envs": [0, 1, 2, 3]}}, "at least one must be left"),
        ({"partition": {"kind": "by_environment", "environments_per_client": 4}}, "there are 3 environments to train"),
        ({"local": {"objective": "groupdro", "hparams": {"groupdro_et": 1}}}, "did you mean 'groupdro_eta'"),
        ({"local": {"objective": "coral", "batch_size": 1}}, "client 0 has"),
        ({"personalize": {"method": "maml"}, "generalize": {}, "local": {"batches": "per_environment"}}, "maml"),
    ],
)
def test_what_cannot_be_is_refused_before_training(table: SampleTable, changes: dict[str, Any], words: str) -> None:
    run = config(**changes)
    with pytest.raises(ConfigError, match=words):
        checked(run, table)


def checked(run: RunConfig, table: SampleTable) -> Partition:
    """The partition of a run, after the checks that root makes."""
    seen = with_split(run, table)
    return check_environments(run, seen, run.partition.split(seen, run.seed))


def test_too_few_environments_are_named_with_clients_and_numbers(
    table: SampleTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedhpc.objectives.mmd import OBJECTIVE

    monkeypatch.setattr(OBJECTIVE, "min_environments", 2)
    with pytest.raises(ConfigError, match="needs 2 environments per client: client 0 has 1, client 1 has 1"):
        checked(config(local={"objective": "mmd"}), table)


def test_an_objective_that_is_erm_in_disguise_is_told(table: SampleTable) -> None:
    run = config(local={"objective": "coral"})
    notes = checked(run, table).notes
    assert notes == ("3 of 3 clients: coral with one training environment is ERM",)
    assert setting_of(run, 4).num_environments == 3
    assert setting_of(run, 4).hparams["lr"] == run.local.lr


@pytest.mark.parametrize(("hparams", "says"), [({}, "of 500 steps begins anew"), ({"irm_penalty_anneal_iters": 2}, "")])
def test_a_warm_up_that_never_ends_is_told(table: SampleTable, hparams: dict[str, Any], says: str) -> None:
    """It counts the steps of one round: 360 samples in minibatches of 64, and 3 given steps."""
    for length in ({"epochs": 1, "batch_size": 64}, {"epochs": None, "steps": 3}):
        notes = [n for n in checked(config(local={"objective": "irm", "hparams": hparams, **length}), table).notes
                 if "warm-up" in n]  # fmt: skip
        assert len(notes) == bool(says)
        assert all(says in note for note in notes)


def test_every_step_has_a_minibatch_of_each_environment_of_the_client() -> None:
    owned = [np.array([0, 2, 2, 0, 2, 2, 2]), np.array([1, 1, 1])]
    plan = ClientEnvironmentBatches(seed=0, batch_size=3, owned=owned, epochs=2)
    assert plan.environments(0) == [0, 2]
    steps = list(plan.batches(0, 1, 7))
    assert len(steps) == 2 * 2, "an epoch passes over the largest environment"
    for first, second in steps:
        assert set(owned[0][first]) == {0}
        assert set(owned[0][second]) == {2}
        assert len(set(first)) == len(first) == 2, "all of an environment that has fewer than a minibatch"
    assert sorted(np.concatenate([s[1] for s in steps[:2]])) == [1, 2, 4, 5, 6]
    again, other = list(plan.batches(0, 1, 7)), list(plan.batches(0, 2, 7))
    assert all(
        np.array_equal(a, b) for one, two in zip(steps, again, strict=True) for a, b in zip(one, two, strict=True)
    )
    assert not all(np.array_equal(a[1], b[1]) for a, b in zip(steps, other, strict=True))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("domains")
    envs = [[0], [1], [2], [3], [0, 1], [1, 2], [1, 3]]
    (out / "s.yaml").write_text(
        f"runs: [{SMOKE}]\nvary:\n  local.objective: [erm, dann]\n  generalize.test_envs: {envs}\n", encoding="utf-8"
    )
    fedhpc("study", out / "s.yaml", "--out", out / "runs", *SHORT)
    return out / "runs"


def test_every_evaluation_asks_about_every_environment(study: Path) -> None:
    run = study / "domains-objectivedann-test_envs0+1-seed0"
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    asked = [(r["what"], r["environment"]) for r in records if "environment" in r and r["round"] == 1]
    assert asked == [
        *(("test_accuracy", 0), ("oracle_accuracy", 0), ("test_accuracy", 1), ("oracle_accuracy", 1)),
        *(("validation_accuracy", 2), ("validation_accuracy", 3)),
    ]
    assert {r["round"] for r in records if "environment" in r} == {0, 1, 2}


def test_validation_is_what_the_clients_of_an_environment_see(study: Path) -> None:
    """Each client holds the smaller parts of one environment: its accuracy is that environment's."""
    out = study.parent / "whole"
    options = ["--partition.clients_per_environment", "1", "--partition.environments_per_client", "1"]
    fedhpc("run", SMOKE, "--out", out, *SHORT, *options)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    last = [r for r in records if r["round"] == 2]
    clients = {r["client"]: r["value"] for r in last if r["what"] == "client_accuracy"}
    environments = {r["environment"]: r["value"] for r in last if r["what"] == "validation_accuracy"}
    assert environments == {1: clients[0], 2: clients[1], 3: clients[2]}


def test_three_criteria_choose_rounds_and_algorithms(study: Path) -> None:
    sweep = read_federations([study])
    assert sweep is not None
    found = federated_results(sweep)
    tables = {name: tables[0] for name, tables in found.tables.items()}
    assert tables["oracle"].environments == ("0", "15", "30", "45")
    assert tables["leave_one_domain_out"].environments == ("15",), "the pairs of the others were not run"
    for table in tables.values():
        erm, dann, best = table.rows
        assert (erm.algorithm, dann.algorithm, best.algorithm) == ("fedavg+erm", "fedavg+dann", BEST_OF_ALL)
        for one, two, chosen in zip(erm.cells, dann.cells, best.cells, strict=True):
            choices = [one.choices[0], two.choices[0]]
            winner = max(choices, key=lambda c: c.validation)
            assert chosen.choices[0].validation == winner.validation
            assert chosen.choices[0].hparams["algorithm"] in ("fedavg+erm", "fedavg+dann")
            assert not chosen.missing


def test_runs_on_other_data_of_the_same_name_are_other_candidates(study: Path, tmp_path: Path) -> None:
    """A folder that says nothing of its data, as older runs, is one more candidate only where there are several."""
    shutil.copytree(study, tmp_path / "runs")
    files = sorted((tmp_path / "runs").glob("*objectiveerm*/partition.json"))
    assert len({json.loads(file.read_text())["data"] for file in files}) == 1

    def candidates(others: dict[int, str | None]) -> list[int]:
        for number, digest in others.items():
            files[number].write_text(json.dumps({**json.loads(files[number].read_text()), "data": digest}))
        sweep = read_federations([tmp_path / "runs"])
        assert sweep is not None
        found = {run.run: run.hparams_seed for run in sweep.planned}
        return [found[str(file.parent)] for file in files[:3]]

    assert candidates({0: None}) == [0, 0, 0]
    assert len(set(candidates({1: "0" * 64}))) == 3


def test_an_unfinished_run_is_missing_with_the_command_that_goes_on(study: Path, tmp_path: Path) -> None:
    run = study / "domains-objectiveerm-test_envs1-seed0"
    (run / "done").rename(tmp_path / "done")
    try:
        said = fedhpc("report", study, "--out", tmp_path / "report")
    finally:
        (tmp_path / "done").rename(run / "done")
    assert f"fedhpc run {run}/config.yaml --out {run} --resume" in said
    tree = json.loads((tmp_path / "report" / "sweep.json").read_text())
    for one, other in (("report.html", "selection.html"), ("selection.html", "report.html")):
        assert f'href="{other}"' in (tmp_path / "report" / one).read_text()
    rows = {r["algorithm"]: r for t in tree["tables"] if t["criterion"] == "oracle" for r in t["rows"]}
    assert rows["fedavg+erm"]["cells"][1]["mean"] is None
    assert rows["fedavg+dann"]["cells"][1]["mean"] is not None


def test_a_run_that_was_never_begun_is_missing_from_each_table_it_belongs_to(study: Path, tmp_path: Path) -> None:
    """Also from the last row, which would take another algorithm's run in its place without a word."""
    shutil.copytree(study, tmp_path / "runs")
    name = "domains-objectiveerm-test_envs1-seed0"
    shutil.rmtree(tmp_path / "runs" / name)
    sweep = read_federations([tmp_path / "runs"])
    assert sweep is not None
    (planned,) = [run for run in sweep.planned if run.id == name]
    assert planned.command.startswith(f"fedhpc study {study.parent}/s.yaml --out {tmp_path}/runs --rounds 2")
    rows = federated_results(sweep, ["oracle"]).tables["oracle"][0].rows
    starred = {row.algorithm: [bool(cell.missing) for cell in row.cells] for row in rows}
    lacks = [False, True, False, False]
    assert starred == {"fedavg+erm": lacks, "fedavg+dann": [False] * 4, BEST_OF_ALL: lacks}


def test_chosen_runs_are_run_again_from_any_place(study: Path) -> None:
    sweep = read_federations([Path(os.path.relpath(study))])
    assert sweep is not None
    found = federated_results(sweep)
    lines = selected_jobs(found).splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("fedhpc ")]
    chosen = {
        c.run for t in found.tables.values() for r in t[0].rows for cell in r.cells for c in cell.choices.values()
    }
    assert {Path(words[2]) for words in commands} == {Path(run).resolve() / "config.yaml" for run in chosen}
    assert [words[:2] for words in commands] == [["fedhpc", "run"]] * len(chosen)
    assert len({words[4] for words in commands}) == len(chosen)
    assert any(line.startswith("# oracle: fedavg+erm on rotated_digits, test environment 15, seed 0") for line in lines)


def test_a_study_varies_any_key(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f"runs: [{SMOKE}]\nseeds: [0, 1]\nvary: {{local.lr: [0.1, 0.01]}}\n")
    planned = plan_study([str(tmp_path / "s.yaml")], [])
    order = [(0.1, 0), (0.01, 0), (0.01, 1), (0.1, 1)]  # within a seed it rotates
    assert [(p.config.local.lr, p.config.seed) for p in planned] == order
    assert [p.name for p in planned] == [f"domains-lr{lr}-seed{seed}" for lr, seed in order]
    (tmp_path / "s.yaml").write_text(f"runs: [{SMOKE}]\nvary: {{local.lr: [0.1, 0.1]}}\n")
    with pytest.raises(ConfigError, match="different values"):
        plan_study([str(tmp_path / "s.yaml")], [])
