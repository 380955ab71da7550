"""What every selection criterion keeps to; a new file in report/criteria is tested by itself."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence

import pytest

from fedhpc import registry
from fedhpc.errors import FedhpcError
from fedhpc.report.selection import PACKAGE, Checkpoint, Criterion, TrialRecords, criteria

NUM_ENVIRONMENTS = 4


@pytest.fixture(params=registry.names(PACKAGE))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["default", "compat"])
def criterion(request: pytest.FixtureRequest, name: str) -> Criterion:
    return criteria([name], compat=request.param)[name]


def make_trials(needs: Sequence[tuple[int, ...]], num_candidates: int = 3) -> list[TrialRecords]:
    """Trials of several candidates with random accuracies, one for every set of held-out environments."""
    draw = random.Random(7)
    return [
        TrialRecords(
            run=f"{envs}-h{seed}",
            dataset="pacs",
            algorithm="erm",
            test_envs=envs,
            hparams_seed=seed,
            trial_seed=0,
            checkpoints=tuple(
                Checkpoint(
                    step,
                    tuple(draw.random() for _ in range(NUM_ENVIRONMENTS)),
                    tuple(draw.random() for _ in range(NUM_ENVIRONMENTS)),
                )
                for step in (0, 10, 20)
            ),
            hparams={"lr": seed},
        )
        for seed in range(num_candidates)
        for envs in needs
    ]


def test_it_needs_the_trial_that_it_reports_on(criterion: Criterion) -> None:
    for env in range(NUM_ENVIRONMENTS):
        needs = criterion.needs(env, NUM_ENVIRONMENTS)
        assert needs[0] == (env,)
        assert len(set(needs)) == len(needs)
        assert all(env in held_out and held_out == tuple(sorted(held_out)) for held_out in needs)
        assert all(0 <= v < NUM_ENVIRONMENTS for held_out in needs for v in held_out)


def test_it_chooses_from_what_it_needs(criterion: Criterion) -> None:
    for env in range(NUM_ENVIRONMENTS):
        trials = make_trials(criterion.needs(env, NUM_ENVIRONMENTS))
        ranking = criterion.rank(trials, env)
        assert len(ranking) == 3
        assert [c.validation for c in ranking] == sorted((c.validation for c in ranking), reverse=True)
        choice = criterion.choose(trials, env)
        assert choice == ranking[0]
        reported = next(t for t in trials if t.run == choice.run)
        assert reported.test_envs == (env,)
        assert reported.hparams == choice.hparams
        at = next(c for c in reported.checkpoints if c.step == choice.step)
        assert choice.test == at.train[env]
        assert choice.validation == pytest.approx(sum(e.accuracy for e in choice.evidence) / len(choice.evidence))


def test_what_it_does_not_need_changes_nothing(criterion: Criterion) -> None:
    needs = criterion.needs(1, NUM_ENVIRONMENTS)
    trials = make_trials(needs)
    others = [t for t in make_trials([(0,), (2, 3), (0, 1), (1, 2), (1, 3)]) if t.test_envs not in needs]
    assert criterion.choose([*others, *trials], 1) == criterion.choose(trials, 1)


def test_the_order_of_trials_does_not_matter(criterion: Criterion) -> None:
    trials = make_trials(criterion.needs(2, NUM_ENVIRONMENTS))
    wanted = criterion.rank(trials, 2)
    random.Random(1).shuffle(trials)
    assert criterion.rank(trials, 2) == wanted


def test_without_one_needed_trial_the_candidate_drops_out(criterion: Criterion) -> None:
    for missing in criterion.needs(0, NUM_ENVIRONMENTS):
        trials = make_trials(criterion.needs(0, NUM_ENVIRONMENTS))
        left = [t for t in trials if not (t.hparams_seed == 1 and t.test_envs == missing)]
        assert sorted(c.hparams_seed for c in criterion.rank(left, 0)) == [0, 2]
    assert criterion.choose([], 0) is None


def test_ties_go_to_the_defaults_or_as_in_the_original(criterion: Criterion) -> None:
    flat = Checkpoint(0, (0.5,) * NUM_ENVIRONMENTS, (0.5,) * NUM_ENVIRONMENTS)
    trials = make_trials(criterion.needs(0, NUM_ENVIRONMENTS))
    tied = [dataclasses.replace(t, checkpoints=(flat, dataclasses.replace(flat, step=5))) for t in trials]
    choice = criterion.choose(tied, 0)
    assert choice is not None
    assert choice.hparams_seed == (2 if criterion.compat else 0)


def test_by_default_unfinished_trials_take_no_part(name: str) -> None:
    trials = make_trials(criteria([name])[name].needs(0, NUM_ENVIRONMENTS))
    cut = [dataclasses.replace(t, finished=t.hparams_seed != 1) for t in trials]
    assert sorted(c.hparams_seed for c in criteria([name])[name].rank(cut, 0)) == [0, 2]
    assert len(criteria([name], compat=True)[name].rank(cut, 0)) == 3


def test_by_default_nan_never_wins(name: str) -> None:
    criterion = criteria([name])[name]
    unknown = (math.nan,) * NUM_ENVIRONMENTS
    trials = make_trials(criterion.needs(0, NUM_ENVIRONMENTS))
    spoilt = [dataclasses.replace(t, checkpoints=(Checkpoint(0, unknown, unknown), *t.checkpoints[1:])) for t in trials]
    found = criterion.rank(spoilt, 0)
    assert len(found) == 3
    assert not any(math.isnan(c.validation) for c in found)
    lost = [
        dataclasses.replace(t, checkpoints=(Checkpoint(0, unknown, unknown),)) if t.hparams_seed == 0 else t
        for t in trials
    ]
    assert sorted(c.hparams_seed for c in criterion.rank(lost, 0)) == [1, 2]


def test_by_default_two_trials_that_claim_to_be_the_same_are_refused(name: str) -> None:
    criterion = criteria([name])[name]
    trials = make_trials(criterion.needs(0, NUM_ENVIRONMENTS))
    double = dataclasses.replace(trials[0], run="copy")
    with pytest.raises(FedhpcError, match="copy are both erm on pacs"):
        criterion.rank([*trials, double], 0)
    assert criteria([name], compat=True)[name].rank([*trials, double], 0)
