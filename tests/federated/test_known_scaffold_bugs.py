"""Rows 1 to 9 of the known bugs, and defects read in the source of other tools."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedhpc.data.batches import ShuffledBatches, SupportQueryBatches
from fedhpc.data.samples import Batch
from fedhpc.errors import ConfigError
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.objectives.base import StepReport
from fedhpc.objectives.erm import Erm
from tests.federated.federation import Clients, federate, make_clients, mlp
from tests.federated.known_bugs import (
    GRID,
    PARTIAL,
    SIZES,
    UNIFORM,
    Constant,
    Remembers,
    assert_control_is_the_mean_gradient,
    control,
    run,
)

# SCAFFOLD


def test_row_01_k_is_the_number_of_local_updates_of_each_client() -> None:
    assert_control_is_the_mean_gradient(epochs=2)


def test_row_02_k_counts_all_epochs() -> None:
    assert_control_is_the_mean_gradient(epochs=3)


def test_row_03_k_counts_batches_not_samples() -> None:
    f = run(Scaffold(), rounds=1, batches=ShuffledBatches(0, 4, epochs=2), lr=0.1)
    for client, steps in enumerate((4, 6, 8)):  # 2, 3 and 4 batches an epoch
        start = federate(Scaffold()).weights
        torch.testing.assert_close(control(f, client), (start - f.recorder.local[0, client]) / (steps * 0.1))


def test_row_04_the_change_of_a_control_is_sent_not_the_control() -> None:
    f = run(Scaffold())
    for border in f.recorder.borders:
        mean = torch.stack([s["control"] for s in border.clients.values()]).sum(0) / 3
        torch.testing.assert_close(border.vectors["control"], mean, rtol=0, atol=GRID)


def test_row_05_the_servers_control_is_divided_by_all_clients() -> None:
    f = run(Scaffold(), cohorts=[[1]], rounds=1)
    torch.testing.assert_close(f.server("control"), control(f, 1) / 3, rtol=0, atol=GRID)


def test_row_06_controls_begin_at_zero_so_round_1_is_fedavg() -> None:
    scaffold, average = run(Scaffold()), run(UNIFORM)
    torch.testing.assert_close(
        scaffold.recorder.borders[0].vectors["weights"],
        average.recorder.borders[0].vectors["weights"],
        rtol=0,
        atol=GRID,
    )
    assert (scaffold.weights - average.weights).abs().max() > 1e-3


def test_row_07_a_smaller_last_batch_is_a_step_of_its_own() -> None:
    Remembers.gradients.clear()
    data = make_clients((9,)).train(0)
    f = run(
        Scaffold(),
        clients=make_clients((9,)),
        cohorts=[[0]],
        rounds=1,
        objective=Remembers,
        batches=ShuffledBatches(0, 4, epochs=1),
    )
    assert len(Remembers.gradients) == 3
    *_, (last,) = ShuffledBatches(0, 4, epochs=1).batches(0, 0, 9)
    assert len(last) == 1
    before_last = federate().weights - 0.1 * (Remembers.gradients[0] + Remembers.gradients[1])
    model = mlp()
    nn.utils.vector_to_parameters(before_last, model.parameters())
    loss = functional.cross_entropy(model(data.x[last]), data.y[last])  # divided by its own size
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(Remembers.gradients[2], expected)
    torch.testing.assert_close(control(f, 0), torch.stack(Remembers.gradients).mean(0), rtol=0, atol=GRID)


def test_row_08_the_local_step_is_plain_sgd_on_g_plus_c_minus_ci() -> None:
    Remembers.gradients.clear()
    f = run(
        Scaffold(), cohorts=[[0, 1, 2], [1]], rounds=2, objective=Remembers, batches=ShuffledBatches(0, 50, steps=1)
    )
    first = f.recorder.borders[0]
    correction = first.vectors["control"] - first.clients[1]["control"]
    assert correction.abs().max() > 1e-2
    expected = first.vectors["weights"] - 0.1 * (Remembers.gradients[-1] + correction)
    torch.testing.assert_close(f.recorder.local[1, 1], expected)


def test_a_client_without_a_usable_step_is_no_divergence_and_keeps_its_control() -> None:
    # Prototypes of one class, queries of another: every step is skipped, and 0/(K·η) would be 0/0.
    clients = make_clients((8, 8))
    clients.trains[1].x.fill_(1)

    class Skips(Erm):
        def backward(self, minibatches: list[Batch]) -> StepReport:
            report = super().backward(minibatches)
            return StepReport(report.loss, skip=bool((minibatches[0].x == 1).all()))

    f = run(Scaffold(), clients=clients, cohorts=[[0, 1]] * 2, rounds=2, objective=Skips)
    assert f.sink.diverged == [{}, {}]
    assert not control(f, 1).any()
    assert control(f, 0).any()


@pytest.mark.parametrize(("optimizer", "momentum"), [("sgd", 0.9), ("adam", 0.0)])
def test_row_09_option_2_refuses_optimizers_that_falsify_it(optimizer: str, momentum: float) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.option 2 of scaffold.*use algorithm\.option: 1"):
        Scaffold().check_local(optimizer, momentum)
    Scaffold(option=1).check_local(optimizer, momentum)
    Scaffold().check_local("sgd", 0.0)


def test_row_09_controls_are_of_named_trainable_parameters() -> None:
    model = mlp()
    model.body[0].bias.requires_grad_(False)
    f = run(Scaffold(), model=model)
    assert control(f, 0).numel() == sum(p.numel() for p in model.parameters() if p.requires_grad)


# Defects read in source


def test_source_pfl_research_a_negative_gradient_gives_a_negative_control() -> None:
    for option in (1, 2):
        f = run(Scaffold(), rounds=1, objective=Constant) if option == 2 else run(Scaffold(option=1), rounds=1)
        if option == 2:
            torch.testing.assert_close(control(f, 0), torch.full_like(control(f, 0), -0.5), rtol=0, atol=GRID)
        else:
            trainer = federate(clients=make_clients(SIZES)).trainer
            torch.testing.assert_close(control(f, 0), trainer.mean_gradient(make_clients(SIZES).train(0)))


def test_source_niid_bench_a_client_that_joins_late_has_a_zero_control() -> None:
    f = run(Scaffold(), cohorts=[[0, 1], [2]], rounds=2, objective=Constant)
    assert 2 not in f.recorder.borders[0].clients
    # With a constant gradient g, c_i becomes g wherever a client's control began at zero.
    torch.testing.assert_close(control(f, 2), torch.full_like(control(f, 2), -0.5), rtol=0, atol=GRID)
    first = f.recorder.borders[0]
    assert torch.allclose(first.vectors["control"], torch.full_like(first.vectors["control"], -0.5 * 2 / 3))


def test_source_fedml_every_client_counts_and_keeps_its_control() -> None:
    f = run(Scaffold(), rounds=1)
    mean = torch.stack([f.recorder.local[0, c] for c in range(3)]).mean(0)
    torch.testing.assert_close(f.weights, mean, rtol=0, atol=GRID)
    assert all(control(f, c).abs().max() > 0 for c in range(3))
    assert len({float(control(f, c).sum()) for c in range(3)}) == 3


def test_source_fedml_feddyns_terms_reach_the_gradient_and_the_server_divides_by_alpha() -> None:
    f = run(
        FedDyn(alpha=0.2), cohorts=[[0], [0]], rounds=2, objective=Constant, batches=ShuffledBatches(0, 50, steps=1)
    )
    first = f.recorder.borders[0]
    drift, x = first.clients[0]["drift"], first.vectors["weights"]
    torch.testing.assert_close(drift, torch.full_like(drift, 0.05))
    torch.testing.assert_close(x, federate().weights + drift + drift / 3, rtol=0, atol=GRID)
    torch.testing.assert_close(f.recorder.local[1, 0], x - 0.1 * (-0.5 + 0.2 * drift), rtol=0, atol=GRID)


def test_source_pfllib_feddyns_penalty_grows_with_the_distance() -> None:
    two = {"clients": make_clients((8,)), "cohorts": [[0]], "rounds": 1, "objective": Constant}
    f = run(FedDyn(alpha=0.5), batches=ShuffledBatches(0, 50, steps=2), lr=0.2, **two)
    moved = f.recorder.local[0, 0] - federate().weights
    torch.testing.assert_close(moved, torch.full_like(moved, 0.1 + 0.2 * (0.5 - 0.5 * 0.1)))


def test_source_feddyns_authors_the_control_uses_the_decayed_rate() -> None:
    assert_control_is_the_mean_gradient(epochs=1, lr_decay=0.5)


def test_source_pfl_prototypes_are_built_on_embeddings_in_every_step() -> None:
    f = federate(
        clients=make_clients((12, 12)),
        rounds=1,
        objective="proto",
        batches=SupportQueryBatches(0, 6, steps=3),
        weight_decay=0.1,
    )
    start = f.weights.clone()
    f.run()
    head = f.trainer.vector.layout[-2].start
    for client in range(2):  # in embedding mode the head gets no gradient, and so no weight decay either
        assert torch.equal(f.recorder.local[0, client][head:], start[head:])
        assert not torch.equal(f.recorder.local[0, client][:head], start[:head])


def test_source_pfl_a_saved_feddyn_model_is_the_one_broadcast_next() -> None:
    f = run(FedDyn(alpha=0.1))
    for before, border in zip(f.recorder.borders, f.recorder.borders[1:], strict=False):
        assert not torch.equal(border.vectors["weights"], before.vectors["weights"])
    fresh: Clients = make_clients(SIZES)
    again = federate(FedDyn(alpha=0.1), clients=fresh, cohorts=PARTIAL, rounds=4)
    third = f.recorder.borders[2]
    again.engine.progress.round = 3
    for name, vector in third.vectors.items():
        again.server(name).copy_(vector)
    for client, state in third.clients.items():
        again.engine.states.put(client, again.engine.states.join(state))
    assert torch.equal(again.run().weights, f.weights)
