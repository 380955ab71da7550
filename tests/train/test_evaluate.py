"""From a model and samples to counts."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from fedhpc.data.samples import Samples
from fedhpc.train.evaluate import Counts, evaluate
from tests.federated.federation import NormNet, identity, make_clients, make_trainer, mlp


def test_counts_are_those_of_one_pass_over_everything() -> None:
    trainer, data = make_trainer(mlp()), make_clients(num_test=23).test(1)
    scores = trainer.objective.model.eval()(data.x).detach()
    counts = evaluate(trainer.objective, data, identity)
    assert counts.correct == int((scores.argmax(1) == data.y).sum())
    assert counts.total == 23
    assert counts.loss == pytest.approx(float(functional.cross_entropy(scores, data.y, reduction="sum")))
    assert counts.accuracy == counts.correct / 23


@pytest.mark.parametrize("batch_size", [1, 7, 22, 23, 1000])
def test_batches_do_not_matter(batch_size: int) -> None:
    trainer, data = make_trainer(NormNet().double()), make_clients(num_test=23).test(1)
    whole = evaluate(trainer.objective, data, identity)
    counts = evaluate(trainer.objective, data, identity, batch_size)
    assert (counts.correct, counts.total) == (whole.correct, whole.total)
    assert counts.loss == pytest.approx(whole.loss)


def test_dropout_is_off_and_training_mode_comes_back() -> None:
    trainer, data = make_trainer(mlp(dropout=0.9)), make_clients(num_test=40).test(0)
    assert evaluate(trainer.objective, data, identity) == evaluate(trainer.objective, data, identity)
    assert trainer.objective.model.training


def test_nothing_is_recorded_for_gradients() -> None:
    trainer, data = make_trainer(mlp()), make_clients().test(0)
    seen = []

    def predict(x: torch.Tensor) -> torch.Tensor:
        scores = trainer.objective.predict(x)
        seen.append(scores.requires_grad)
        return scores

    evaluate(trainer.objective, data, identity, predict=predict)
    assert seen == [False]


def test_samples_are_never_augmented() -> None:
    modes: list[bool] = []

    def spy(x: torch.Tensor, noise: torch.Generator | None, train: bool) -> torch.Tensor:
        modes.append(train or noise is not None)
        return x

    evaluate(make_trainer(mlp()).objective, make_clients().test(0), spy)
    assert modes == [False]


def test_scores_that_are_not_numbers_are_right_about_nothing() -> None:
    trainer, data = make_trainer(mlp()), make_clients(num_test=23).test(1)

    def predict(x: torch.Tensor) -> torch.Tensor:
        scores = functional.one_hot(data.y, 3).double()
        scores[data.y == 0] = math.nan
        return scores

    counts = evaluate(trainer.objective, data, identity, predict=predict)
    assert 0 < counts.correct == int((data.y != 0).sum()) < 23
    assert math.isnan(counts.loss)


def test_without_samples_there_is_no_accuracy() -> None:
    empty = Samples(torch.empty(0, 4, 1, 1, dtype=torch.float64), torch.empty(0, dtype=torch.int64))
    counts = evaluate(make_trainer(mlp()).objective, empty, identity)
    assert counts == Counts(0, 0, 0.0)
    assert math.isnan(counts.accuracy)
