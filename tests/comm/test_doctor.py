"""What `fedhpc doctor` says about a launch that cannot be tried out."""

from __future__ import annotations

import pytest

from fedhpc.comm.doctor import host_loss

MPIRUN = {"PRTE_LAUNCHED": "1"}


@pytest.mark.parametrize(
    ("num_hosts", "survives", "environment", "said"),
    [
        (1, False, MPIRUN, "on one host"),
        (3, True, MPIRUN, "oob_tcp_keepalive_time 0"),
        (3, False, MPIRUN, "ServerAliveInterval"),
        (3, False, {**MPIRUN, "SLURM_JOB_ID": "7"}, "scheduler"),
        (3, False, {"FLUX_JOB_ID": "f7"}, "scheduler"),
        (3, False, {"PMI_SIZE": "3"}, "hang_seconds"),
    ],
)
def test_what_follows_from_the_loss_of_a_host_is_said(
    num_hosts: int, survives: bool, environment: dict[str, str], said: str
) -> None:
    verdict = host_loss(num_hosts, survives, environment)
    assert said in verdict.text
    assert (verdict.state == "skipped") is (num_hosts == 1)
