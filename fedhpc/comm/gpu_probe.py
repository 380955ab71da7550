"""Whether the MPI library takes GPU buffers: asked in a child process, since a wrong guess is a crash and no error.

`python -m fedhpc.comm.gpu_probe` is the child: a world of one rank that sends, broadcasts and adds up device buffers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

_LAUNCHER = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "PALS_", "SLURM_", "FLUX_", "JSM_", "MPI_LOCAL", "HYDI_", "MPIR_")
_SECONDS = 60


def probe() -> tuple[bool, str]:
    """Run the child; returns whether GPU buffers work, and what was seen."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHER)}
    env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [sys.executable, "-m", "fedhpc.comm.gpu_probe"]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {_SECONDS} s"
    if done.returncode == 0:
        return True, "Send, Bcast and Allreduce take GPU buffers"
    if done.returncode < 0:
        return False, f"the probe died of {signal.Signals(-done.returncode).name}"
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return False, last[:200]


def main() -> None:
    """The child."""
    import torch

    from fedhpc.comm.mpi import self_test

    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    values = torch.arange(1024, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()
    self_test(values)
    torch.cuda.synchronize()
    if not torch.equal(values.cpu(), torch.arange(1024, dtype=torch.float32)):
        sys.exit("wrong numbers came back")


if __name__ == "__main__":
    main()
