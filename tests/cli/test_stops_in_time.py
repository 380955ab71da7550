"""Runs of both kinds stop by themselves before their job ends, however often, and lose and change nothing by it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fedhpc.comm.deadline import JOB_END
from tests.cli.commands import fedhpc_
from tests.conftest import REPOSITORY

MEDICAL = (
    "--rounds=2 --local.steps=1 --scenario.tasks=2 --scenario.clients=2 --model.hidden=[8] --recipe.head_share=0.5 "
    "--device.threads=1"
)
FEDERATED = "--rounds=4 --evaluate.every=2 --checkpoint.every=0"


@pytest.mark.parametrize("kind", ["federated", "medical"])
def test_jobs_too_short_for_two_rounds_end_in_the_bits_of_one_long_job(
    kind: str, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    crt = REPOSITORY / "configs" / "smoke" / "medical" / "crt.yaml"
    words = ["run", *([config, *FEDERATED.split()] if kind == "federated" else [crt, *MEDICAL.split()])]
    assert fedhpc_(*words, "--out", tmp_path / "long") == 0
    whole = json.loads((tmp_path / "long" / "done").read_text())

    codes = []
    while 0 not in codes:
        monkeypatch.setenv(JOB_END, str(time.time() + 9))  # less than is kept for the way out
        codes.append(fedhpc_(*words, "--out", tmp_path / "short", "--resume"))
        assert len(codes) <= 2 * whole["rounds"] + 2, "a job does a round or an evaluation"
    assert set(codes[:-1]) == {75}
    assert len(codes) >= whole["rounds"], "one round a job"
    assert capsys.readouterr().out.count("(the job's time is running out)") == len(codes) - 1
    done = json.loads((tmp_path / "short" / "done").read_text())
    for key in ("rounds", "weights_sha256", "final_client_accuracy"):
        assert done[key] == whole[key]
    assert accuracies(tmp_path / "short") == accuracies(tmp_path / "long"), "each evaluation is recorded once"


def accuracies(run: Path) -> list[tuple[int, float]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(r["round"], r["value"]) for r in records if r["what"] == "client_accuracy_mean"]
