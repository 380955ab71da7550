"""Mistakes that other federated tools have made, one test each; the number is the row of the project's list of them.

What a row reports is in the test's name or comment; vectors of the same bugs are in tests/golden. Rows 1 to 9 are about
SCAFFOLD and stand in test_known_scaffold_bugs.py.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedhpc.data.batches import ShuffledBatches, SupportQueryBatches
from fedhpc.data.samples import Batch, Samples
from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.algorithms.fedprox import FedProx
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.federated.personalize import AdaptByGradient
from fedhpc.objectives.maml import Maml
from fedhpc.tensors.vector import ParameterVector
from tests.federated.federation import NormNet, federate, make_clients, mlp, norm_federation
from tests.federated.known_bugs import (
    GRID,
    SIZES,
    Constant,
    run,
)

# Batch norm


def test_row_10_algorithms_touch_trainable_weights_alone() -> None:
    f = norm_federation(Scaffold(server_lr=2.0), rounds=2).run()
    size = sum(p.numel() for p in NormNet().parameters())
    assert f.server("control").numel() == size
    assert (f.recorder.borders[-1].buffers[4:] > 0).all()


def test_row_11_statistics_are_averaged_counters_take_the_maximum_and_stay_integers() -> None:
    both = norm_federation(cohorts=[[0, 1]], rounds=1).run()
    one, other = (norm_federation(cohorts=[[c]], rounds=1).run().recorder.borders[0] for c in (0, 1))
    expected = (6 * one.buffers + 10 * other.buffers) / 16
    torch.testing.assert_close(both.recorder.borders[0].buffers, expected, rtol=0, atol=GRID)
    final = both.engine.final_model()["norm.num_batches_tracked"]
    assert (final.dtype, final.item()) == (torch.int64, 3)
    assert [one.counters.item(), other.counters.item()] == [2, 3]


def test_row_12_evaluation_uses_the_averaged_statistics() -> None:
    f = norm_federation(rounds=2, clients=make_clients((6, 10, 14), num_test=60)).run()
    model = NormNet().double()
    model.load_state_dict(f.engine.final_model())
    for client in range(3):
        data = f.clients.test(client)
        expected = float((model.eval()(data.x).argmax(1) == data.y).double().mean())
        assert f.sink.values("client_accuracy", client=client)[-1] == expected


def test_row_13_state_of_mixed_types_goes_through_the_reduction() -> None:
    class Mixed(NormNet):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.tensor([[1, 2], [3, 4]], dtype=torch.int32))
            self.register_buffer("mask", torch.tensor([True, False]))
            self.register_buffer("temperature", torch.tensor(2.5))

    f = federate(model=Mixed().double(), clients=make_clients((6, 10)), rounds=2).run()
    final = f.engine.final_model()
    assert final["table"].tolist() == [[1, 2], [3, 4]]
    assert final["table"].dtype == torch.int32
    assert final["mask"].tolist() == [True, False]
    assert final["mask"].dtype == torch.bool
    assert final["temperature"].shape == ()
    assert final["temperature"].item() == pytest.approx(2.5, abs=GRID)
    assert final["norm.num_batches_tracked"].item() == 6


# Optimizers


def test_row_14_momentum_does_not_survive_the_round() -> None:
    momentum = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    clients = make_clients((8,))
    f = federate(clients=clients, rounds=2, optimizer=momentum, batches=ShuffledBatches(0, 8, steps=3)).run()
    model = mlp()
    for _ in range(2):
        optimizer = momentum(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            functional.cross_entropy(model(clients.train(0).x), clients.train(0).y).backward()
            optimizer.step()
    expected = nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.testing.assert_close(f.weights, expected, rtol=0, atol=GRID)


# FedDyn


def test_row_15_the_broadcast_model_is_subtracted_once_per_participant() -> None:
    f = run(FedDyn(alpha=0.1), cohorts=[[0, 2]], rounds=1)
    start = federate().weights
    moved = [f.recorder.local[0, c] - start for c in (0, 2)]
    torch.testing.assert_close(f.server("mean_drift"), (moved[0] + moved[1]) / 3, rtol=0, atol=GRID)


def test_row_16_weight_decay_may_hold_the_quadratic_term_unless_there_is_a_clip() -> None:
    equal = {"clients": make_clients((8, 8)), "cohorts": [[0, 1]] * 2, "rounds": 2}
    for clip, same in ((None, True), (0.05, False)):
        canonical, repo = (run(FedDyn(0.5, profile), clip=clip, **equal) for profile in ("canonical", "feddyn-repo"))
        apart = float((canonical.weights - repo.weights).abs().max())
        assert (apart <= GRID) is same


def test_row_17_the_evaluated_model_need_not_be_the_broadcast_one() -> None:
    runs = [
        run(FedDyn(alpha=0.1), clients=make_clients(SIZES, num_test=300), lr=0.5, settings={"evaluated_model": which})
        for which in ("broadcast_next", "avg_selected", "avg_all")
    ]
    assert torch.equal(runs[0].weights, runs[1].weights)
    assert torch.equal(runs[0].weights, runs[2].weights)
    losses = [f.sink.values("test_loss")[-1] for f in runs]
    assert len(set(losses)) == 3


def test_row_18_feddyn_with_a_client_that_is_not_a_number_goes_on_finite() -> None:
    clients = make_clients(SIZES)
    clients.trains[0].x[0] = float("nan")
    f = run(FedDyn(alpha=0.1), clients=clients)
    assert [sorted(d) for d in f.sink.diverged] == [[0], [0], [], [0]]
    assert torch.isfinite(f.weights).all()
    assert torch.isfinite(f.server("mean_drift")).all()


# FedProx


def prox_part(mu: float, steps: int) -> Tensor:
    """What the proximal term adds to the last of some full-batch local steps of one client."""
    plan = ShuffledBatches(0, 50, steps=steps)
    one = {"clients": make_clients((8,)), "cohorts": [[0]], "rounds": 1, "batches": plan}
    return run(FedProx(mu=mu), **one).recorder.local[0, 0] - run(FedAvg(), **one).recorder.local[0, 0]


def test_row_19_the_proximal_gradient_is_mu_times_the_way_from_the_anchor() -> None:
    assert torch.equal(prox_part(0.5, 1), torch.zeros_like(prox_part(0.5, 1)))
    one = {"clients": make_clients((8,)), "cohorts": [[0]], "rounds": 1}
    first = run(FedAvg(), batches=ShuffledBatches(0, 50, steps=1), **one)
    away = first.recorder.local[0, 0] - federate().weights
    torch.testing.assert_close(prox_part(0.5, 2), -0.1 * 0.5 * away, rtol=1e-9, atol=1e-14)


def test_row_20_the_proximal_term_is_squared() -> None:
    # With the plain norm the term's gradient would have length mu however far the weights are.
    near, far = (
        run(
            FedProx(mu=0.5),
            clients=make_clients((8,)),
            cohorts=[[0]],
            rounds=1,
            lr=lr,
            objective=Constant,
            batches=ShuffledBatches(0, 50, steps=2),
        ).recorder.local[0, 0]
        - federate().weights
        for lr in (0.1, 0.2)
    )
    gradient = 0.5
    for moved, lr in ((near, 0.1), (far, 0.2)):
        first = lr * gradient
        torch.testing.assert_close(moved, torch.full_like(moved, first + lr * (gradient - 0.5 * first)))


def test_row_21_the_anchor_stays_for_the_whole_round() -> None:
    weak, strong, none = (run(FedProx(mu=mu), lr=0.3).weights for mu in (0.1, 1.0, 0.0))
    assert (weak - strong).abs().max() > 1e-3
    assert torch.equal(none, run(FedAvg(), lr=0.3).weights)


# Personalisation


def test_row_22_the_meta_gradient_is_applied_where_the_round_began() -> None:
    clients = make_clients((8,))
    plan = SupportQueryBatches(0, 4, steps=1)
    f = federate(
        clients=clients,
        cohorts=[[0]],
        rounds=1,
        batches=plan,
        objective="maml",
        options={"inner_lr": 0.5, "inner_steps": 2},
    ).run()
    ((support, query),) = plan.batches(0, 0, 8)
    model = mlp()
    vector = ParameterVector(model)
    start, data = vector.weights.clone(), clients.train(0)
    vector.zero_grads()
    Maml(model, vector, inner_lr=0.5, inner_steps=2).backward([Batch(data.x[i], data.y[i]) for i in (support, query)])
    torch.testing.assert_close(f.weights, start - 0.1 * vector.grads, rtol=0, atol=GRID)


def test_row_23_adaptation_does_not_see_test_labels() -> None:
    def adapted(shift: int) -> tuple[list[Tensor], list[float]]:
        clients = make_clients(SIZES, num_test=40)
        for samples in clients.tests:
            samples.y[:] = (samples.y + shift) % 3
        kept: list[Tensor] = []

        class Spy(AdaptByGradient):
            def predictor(self, trainer: Any, train: Samples) -> Any:
                predict = super().predictor(trainer, train)
                kept.append(trainer.vector.weights.clone())
                return predict

        f = federate(clients=clients, rounds=1, personalizer=Spy(0.2, 3)).run()
        return kept, f.sink.values("client_accuracy")

    (first, accuracies), (second, others) = adapted(0), adapted(1)
    assert len(first) == 6
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert accuracies != others


def test_row_24_the_result_is_the_last_rounds_unweighted_mean() -> None:
    clients = make_clients(SIZES, num_test=30)
    clients.tests[1] = Samples(clients.tests[1].x[:3], clients.tests[1].y[:3])
    f = federate(
        clients=clients, rounds=12, cohorts=[[r % 3] for r in range(12)], lr=2.0, settings={"evaluate_every": 1}
    ).run()
    means = f.sink.values("client_accuracy_mean")
    assert max(means) > means[-1]
    assert f.engine.progress.accuracy == means[-1]
    listed = f.sink.values("client_accuracy")[-3:]
    assert means[-1] == pytest.approx(sum(listed) / 3)


def test_row_25_zero_total_weight_is_an_explicit_error() -> None:
    class NoSteps(ShuffledBatches):
        def batches(self, client: int, round: int, num_samples: int) -> Any:
            return iter(())

    empty = {"clients": make_clients((6, 0, 0)), "batches": NoSteps(0, 4, steps=1)}
    f = federate(cohorts=[[1, 2]], rounds=1, **empty)
    before = f.weights.clone()
    with pytest.raises(FedhpcError, match="zero total weight"):
        f.run()
    assert torch.equal(f.weights, before)
    with pytest.raises(ConfigError, match="client 1 has no train samples"):
        federate(clients=make_clients((6, 0)), rounds=1).run()
