"""What a report on a sweep says beside its figures."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from fedhpc.report.published import published_error, published_mean
from fedhpc.report.results import SweepRecords
from fedhpc.report.sweep_json import json_tree
from fedhpc.report.sweep_notes import missing_notes, remarks
from fedhpc.report.sweep_tables import explanations, text_report
from fedhpc.report.sweeps import load, results
from tests.report.own_sweep import fail, specs, write_sweep
from tests.report.test_sweep_report import write_original

PACS = {"pacs": ["art_painting", "cartoon", "photo", "sketch"]}


def notes(folder: Path, names: list[str] | None = None) -> str:
    found = results(load(folder), names)
    return "\n".join([*missing_notes(found), *remarks(found)])


def test_the_command_tries_failed_trials_again(tmp_path: Path) -> None:
    trials = specs()
    folder = write_sweep(tmp_path / "a b", trials, PACS, finished=trials[2:])
    assert "--retry-failed" not in notes(folder)
    fail(folder, trials[0], 1, "ValueError: first")
    fail(folder, trials[0], 2, "ValueError: second")
    fail(folder, trials[5], 1, "OSError: was done later")
    said = notes(folder)
    assert "2 trials are missing, 1 of them failed" in said
    assert f"{trials[0].id}: erm on pacs" in said
    assert "failed: ValueError: second" in said
    assert "OSError" not in said
    (command,) = [line for line in said.splitlines() if line.startswith("  fedhpc sweep")]
    ids = f"{trials[0].id},{trials[1].id}"
    assert shlex.split(command)[3:] == ["--out", str(folder), "--only", ids, "--retry-failed"]
    (folder / "queue" / f"{trials[0].id}.2.failed").write_text("{", encoding="utf-8")
    assert "failed: no traceback is known" in notes(folder)
    assert json_tree(results(load(folder)))["rerun"] == command.strip()


def test_with_many_missing_trials_the_whole_sweep_is_run_again(tmp_path: Path) -> None:
    trials = specs()
    folder = write_sweep(tmp_path, trials, PACS, finished=[])
    fail(folder, trials[0], 1, "ValueError: x")
    assert f"--out {tmp_path} --retry-failed\n" in notes(folder)
    assert "in %: no trial that a cell needs is finished\n" in text_report(results(load(folder)))


def test_of_a_part_of_a_configuration_no_more_than_that_is_run_again(tmp_path: Path) -> None:
    """The folder that selected.sh fills plans the chosen trials only."""
    trials = specs()
    folder = write_sweep(tmp_path, trials, PACS, finished=[])
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    (folder / "plan.json").write_text(json.dumps({**plan, "whole": False}), encoding="utf-8")
    assert f"--out {tmp_path} --only {','.join(t.id for t in trials)}\n" in notes(folder)


def test_a_criterion_without_trials_says_why_it_has_no_table(tmp_path: Path) -> None:
    trials = specs(pairs=False)
    folder = write_sweep(tmp_path, trials, PACS, ["oracle"])
    said = notes(folder, ["leave_one_domain_out"])
    assert (
        "pacs cannot be judged by leave-one-domain-out cross-validation: it needs trials that hold out [0, 1]" in said
    )
    assert "name leave_one_domain_out in sweep.criteria" in said
    assert "cannot be judged" not in notes(folder)
    two = write_sweep(tmp_path / "two", specs("d", 2, pairs=False), {"d": ["x", "y"]}, ["oracle"])
    assert "with 2 environments it would leave none to train on" in notes(two, ["leave_one_domain_out"])
    without = tuple(f"{e}-h{h}-t{t}" for e in ("0+1", "0+2", "1+2") for h in range(2) for t in range(2))
    assert "Made_Up cannot be judged" in notes(write_original(tmp_path / "theirs", without))


def test_empty_validation_parts_are_told(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, specs(), PACS, validation=None)
    assert "nothing was measured on the validation part of environment art_painting, cartoon" in notes(folder)
    found = results(load(folder), ["training_domain_validation"])
    assert any("no trial has what this criterion chooses by" in line for line in explanations(found))


def test_trials_of_one_draw_that_had_different_hyperparameters_are_named(tmp_path: Path) -> None:
    """Another version of the program may draw otherwise; ids of trials do not tell."""
    trials = specs()
    folder = write_sweep(tmp_path, trials, PACS)
    assert "different hyperparameters" not in notes(folder)
    odd = next(t for t in trials if (t.test_envs, t.hparams_seed, t.trial_seed) == ((2,), 1, 0))
    done = json.loads((folder / odd.folder / "done").read_text(encoding="utf-8"))
    (folder / odd.folder / "done").write_text(json.dumps({**done, "hparams": {"lr": 7.5}}), encoding="utf-8")
    (line,) = [line for line in notes(folder).splitlines() if "different hyperparameters" in line]
    assert "erm on pacs, hparams seed 1, trial 0: lr is 7.5 in trials/pacs/erm/e2-h1-t0" in line
    assert "and 1.1 in 9 others" in line


def test_diverged_trials_are_named(tmp_path: Path) -> None:
    trials = specs()
    folder = write_sweep(tmp_path, trials, PACS, diverged=trials[:7])
    said = notes(folder)
    assert "7 of 40 trials diverged (the last loss is not finite)" in said
    assert f"{trials[5].folder} and 1 more" in said
    assert json_tree(results(load(folder)))["diverged"] == [
        t.folder for t in sorted(trials[:7], key=lambda t: t.folder)
    ]
    theirs = write_original(tmp_path / "theirs")
    file = theirs / "0-h0-t0" / "results.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({**row, "gen_loss": float("nan")}) + "\n" for row in rows))
    assert "1 of 24 trials diverged" in notes(theirs)


def test_figures_are_compared_with_the_published_ones(tmp_path: Path) -> None:
    assert published_mean("oracle", "terra_incognita", "cdann") == 50.8
    assert published_mean("oracle", "rotated_digits", "erm") is None
    assert published_mean("other", "pacs", "erm") is None
    assert published_error("training_domain_validation", "terra_incognita", "erm") == 1.8
    assert published_error("oracle", "pacs", "irm") is published_error("oracle", "mine", "erm") is None
    found = results(load(write_sweep(tmp_path, specs(algorithms=("erm", "mine")), PACS)))
    rows = [line.split() for line in text_report(found).splitlines() if "(" in line and line.startswith("erm")]
    assert rows == [
        ["erm", "85.5", "±", "0.2", "(-25.0)"],
        ["erm", "83.0", "±", "0.7", "(-22.5)"],
        ["erm", "86.7", "±", "0.3", "(-26.2)"],
    ]


def test_a_mean_over_some_environments_is_not_held_against_one_over_all(tmp_path: Path) -> None:
    trials = [t for t in specs() if t.test_envs == (0,)]
    found = results(load(write_sweep(tmp_path, trials, PACS, ["oracle"])))
    assert "published means" not in text_report(found)
    (row,) = [row for table in json_tree(found)["tables"] for row in table["rows"]]
    assert row["published_mean"] is row["published_standard_error"] is None


@pytest.mark.parametrize("algorithm", ["erm", "fedavg+erm"])
def test_candidates_of_federations_are_no_defaults(algorithm: str, tmp_path: Path) -> None:
    """They are only numbered; in a sweep the number 0 stands for the defaults."""
    sweep = load(write_sweep(tmp_path, specs(), PACS))
    runs = [replace(t, algorithm=algorithm) for t in sweep.trials]
    found = results(SweepRecords("runs", tuple(runs), environments=sweep.environments), ["oracle"])
    assert "defaults" not in "".join(explanations(found))
    assert json_tree(found)["tables"][0]["rows"][0]["cells"][0]["defaults"]["mean"] is None


def test_the_hyperparameters_of_a_choice_are_told_as_far_as_draws_differ(tmp_path: Path) -> None:
    found = results(load(write_sweep(tmp_path / "x", specs(), PACS)), ["oracle"])
    chosen = [line for line in explanations(found) if line.startswith("  trial ")]
    assert ["hparams seed 1 (lr 1.1); chosen by" in line for line in chosen] == [True, False] * 4
    assert ["hparams seed 1 (lr 2.1); chosen by" in line for line in chosen] == [False, True] * 4
    alone = [t for t in specs() if t.hparams_seed == t.trial_seed == 0]
    found = results(load(write_sweep(tmp_path / "y", alone, PACS)), ["oracle"])
    assert all("hparams seed 0; chosen by" in line for line in explanations(found) if line.startswith("  trial "))


def test_draws_that_repeat_are_no_source_of_error(tmp_path: Path) -> None:
    """`sweep.fixed_draws`: every repetition chooses among the same draws."""
    fresh = results(load(write_sweep(tmp_path / "fresh", specs(), PACS)), ["oracle"])
    assert "among all draws, whose error is that of draws and training;" in "".join(explanations(fresh))
    fixed = results(load(write_sweep(tmp_path / "fixed", specs(setup={"fixed_draws": True}), PACS)), ["oracle"])
    said = "".join(explanations(fixed))
    assert "60.5 ± 0.4 among all draws, which are the same in every trial;" in said
    assert "draws and training" not in said


def test_both_errors_are_told(tmp_path: Path) -> None:
    found = results(load(write_sweep(tmp_path, specs(), PACS)), ["oracle"])
    cell = json_tree(found)["tables"][0]["rows"][0]["cells"][0]
    assert (cell["mean"], cell["defaults"]["mean"]) == (pytest.approx(60.5), pytest.approx(50.5))
    assert any("50.5 ± 0.4 with the defaults in every trial" in line for line in explanations(found))


@pytest.mark.parametrize(("algorithm", "told"), [("erm", False), ("dann", True), ("fedavg+cdann", True)])
def test_adversarial_draws_are_told_of_where_there_are_some(algorithm: str, told: bool, tmp_path: Path) -> None:
    sweep = load(write_sweep(tmp_path, specs(), PACS))
    runs = tuple(replace(t, algorithm=algorithm) for t in sweep.trials)
    said = "".join(remarks(results(SweepRecords("runs", runs, environments=sweep.environments), ["oracle"])))
    assert "each choice is among 2 hyperparameter draws" in said
    assert ("DANN" in said) == told


def test_ceilings_of_coloured_digits_are_told(tmp_path: Path) -> None:
    labels = {"colored_mnist": ["+90%", "+80%", "-90%"]}
    assert "ends at 75 %" in notes(write_sweep(tmp_path, specs("colored_mnist", 3), labels))
