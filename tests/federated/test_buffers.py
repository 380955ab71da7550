"""The two buffers of a round hold everything in one piece."""

from __future__ import annotations

import torch

from fedhpc.federated.buffers import Down, Order, Sizes, Up, Verdict


def test_down_is_one_buffer_with_named_parts() -> None:
    down = Down(("weights", "control"), Sizes(5, 2, 1, 3), torch.float32)
    assert down.data.numel() == 2 * 5 + 2 + 1 + 3 + 1
    down["weights"].fill_(1)
    down["control"].fill_(2)
    down["seconds"].fill_(3)
    assert down.data.is_contiguous()
    assert down.data.sum() == 5 + 10 + 9
    assert {n: v[0].item() for n, v in down.vectors(torch.device("cpu")).items()} == {"weights": 1, "control": 2}


def test_orders_survive_the_way_through_floats() -> None:
    down = Down(("weights",), Sizes(1, 0, 0, 1), torch.float32)
    for order in Order:
        down.order = order
        assert down.order is order


def test_up_has_a_row_per_cohort_position_and_a_signal() -> None:
    up = Up(("delta",), Sizes(5, 2, 3, 4), torch.float64)
    assert up.rows.shape == (4, Up.FIXED + 3)
    up.rows[2, Up.VERDICT] = float(Verdict.ACCEPTED)
    up["signal"][0] = 1
    assert up.data.sum() == 2
    up.clear()
    assert not up.data.any()
    assert up.data.numel() == 5 + 2 + 4 * (Up.FIXED + 3) + 1
