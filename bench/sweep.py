"""Four figures of a sweep: steps against a bare loop, use of the ranks, start-up of a trial, batches of photos.

    python bench/sweep.py [--json FILE] [--only steps,ranks,startup,photos] [--mnist DIR] [--photos DIR]

- steps: one ERM trial of the size of RotatedMNIST (5 training environments x batch 64, 1 thread) against a bare loop
  over float tensors in memory. Blocks of steps alternate; seconds of CPU, so that other jobs disturb both little.
- ranks: 24 trials of unequal length on 2 ranks: seconds from the first claim to the last trial, against
  (sum of the trials' seconds + the longest) / 2.
- startup: seconds from a claimed trial to its first step when its data is already on the node and something ran before.
- photos: 224 x 224 batches from HDF5 against torchvision's ImageFolder with one worker, decoding included, plain and
  augmented. Batches alternate; seconds of CPU.

Targets: steps <= 1.05, ranks <= 1.10, startup < 0.5 s, photos >= 5 (plain) and >= 1 (augmented). Without --mnist (a
prepared rotated_mnist) and --photos (raw class folders, e.g. PACS/photo) the pixels are made up: the times do not
depend on them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

import numpy as np  # noqa: E402 - the thread count comes first

ENVIRONMENTS, SAMPLES, BATCH = 6, 70_000, 64
SWEEP = """
sweep:
  datasets: {{rotated_digits: null}}
  algorithms: [erm, coral, mldg]
  criteria: [oracle]
  n_hparams: 2
  n_trials: 1
  steps: {steps}
  checkpoint_freq: {steps}
model: {{name: mlp_features, hidden: [256, 256]}}
device: {{threads: 1, name: cpu}}
"""
SETUP = {"model": {"name": "mnist_cnn"}}


def alternate(work: dict[str, Callable[[], None]], blocks: int, size: int) -> dict[str, list[float]]:
    """Seconds of CPU per call of several pieces of work in turn; the first block of each is not counted."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for block in range(blocks + 1):
        for name, call in work.items():
            began = time.process_time()
            for _ in range(size):
                call()
            if block:
                found[name].append((time.process_time() - began) / size)
    return found


def made_up_digits(folder: Path) -> Path:
    """A prepared dataset of the size of RotatedMNIST."""
    from fedhpc.data.writer import ShardWriter

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (SAMPLES, 28, 28, 1), dtype=np.uint8)
    names = [str(c) for c in range(10)], [str(e) for e in range(ENVIRONMENTS)]
    with ShardWriter(
        folder, name="rotated_mnist", classes=names[0], environments=names[1], shape=(28, 28, 1), expected=SAMPLES
    ) as writer:
        for i, image in enumerate(pixels):
            writer.add(image, label=i % 10, environment=i * ENVIRONMENTS // SAMPLES)
    return folder


def erm_trial(store: Any, algorithm: str = "erm") -> Any:
    """A trial with the defaults, test environment 0."""
    from fedhpc.sweep.run_trial import Trial
    from fedhpc.sweep.trials import TrialSpec

    return Trial(TrialSpec("rotated_mnist", algorithm, (0,), 0, 0, 5001, 300, setup=SETUP), store)


def bare_loop(store: Any) -> Callable[[], None]:
    """The same step as one writes it without this package: all images as float tensors, one Adam."""
    import torch
    from torch import nn
    from torch.nn import functional

    layers: list[nn.Module] = []
    for channels, out, stride in ((1, 64, 1), (64, 128, 2), (128, 128, 1), (128, 128, 1)):
        layers += [nn.Conv2d(channels, out, 3, stride, 1), nn.ReLU(), nn.GroupNorm(8, out)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = [], []
    for environment in range(1, ENVIRONMENTS):
        rows = np.flatnonzero(store.table.environment == environment)
        x.append(torch.from_numpy(store.images(rows)).permute(0, 3, 1, 2).float().div(255).contiguous())
        y.append(torch.from_numpy(store.table.labels[rows]))

    def step() -> None:
        picks = [torch.randint(len(labels), (BATCH,)) for labels in y]
        images = torch.cat([images[p] for images, p in zip(x, picks, strict=True)])
        labels = torch.cat([labels[p] for labels, p in zip(y, picks, strict=True)])
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def steps(store: Any, blocks: int) -> dict[str, Any]:
    """Figure (a)."""
    import torch

    from fedhpc.comm.process import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    trial = erm_trial(store)
    found = alternate({"trial": trial.train_one_step, "bare": bare_loop(store)}, blocks, 3)
    ratios = [a / b for a, b in zip(found["trial"], found["bare"], strict=True)]
    return {"ratio": statistics.median(ratios), "seconds": {k: statistics.median(v) for k, v in found.items()}}


def ranks(folder: Path, num_steps: int) -> dict[str, Any]:
    """Figure (b)."""
    config, out = folder / "unequal.yaml", folder / "sweep"
    config.write_text(SWEEP.format(steps=num_steps), encoding="utf-8")
    root = {f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}
    command = [str(Path(sys.executable).parent / "mpirun"), "-n", "2", sys.executable, "-m", "fedhpc", "sweep"]
    began = time.time()
    subprocess.run(
        [*command, str(config), "--out", str(out)], check=True, stdout=subprocess.DEVNULL,
        env={**os.environ, **root, "PYTHONPATH": str(REPOSITORY)}, cwd=REPOSITORY,
    )  # fmt: skip
    whole = time.time() - began
    seconds = [json.loads(done.read_text())["seconds"] for done in out.glob("trials/*/*/*/done")]
    claims = [claim.stat().st_mtime for claim in out.glob("queue/*.1")]
    ends = [done.stat().st_mtime for done in out.glob("trials/*/*/*/done")]
    span, ideal = max(ends) - min(claims), (sum(seconds) + max(seconds)) / 2
    return {
        "ratio": span / ideal, "trials": len(seconds), "seconds": span, "sum": sum(seconds), "longest": max(seconds),
        "with_start_of_processes": whole,
    }  # fmt: skip


def startup(store: Any, repeats: int) -> dict[str, Any]:
    """Figure (c): what a worker does from the claim on, for every algorithm of the study in turn."""
    from fedhpc.sweep.settings import STUDY

    found = []
    for algorithm in STUDY[:1] + STUDY * repeats:  # the first pays for imports
        began = time.perf_counter()
        trial = erm_trial(store, algorithm)
        ready = time.perf_counter() - began
        trial.train_one_step()
        found.append(ready)
    return {"seconds": statistics.median(found[1:]), "most": max(found[1:]), "num_samples": store.num_samples}


def made_up_photos(folder: Path) -> Path:
    """Smooth JPEGs of the size of PACS."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for i in range(256):
        small = Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        place = folder / f"class{i % 7}"
        place.mkdir(parents=True, exist_ok=True)
        small.resize((227, 227), Image.Resampling.BICUBIC).save(place / f"{i}.jpg", quality=90)
    return folder


def endless(number: int) -> Iterator[np.ndarray]:
    """Batches of 32 indices in fresh orders."""
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(number)
        yield from (order[s : s + 32] for s in range(0, number - 31, 32))


def photos(raw: Path, folder: Path, blocks: int) -> dict[str, Any]:
    """Figure (d)."""
    import torch
    from torchvision import transforms as t
    from torchvision.datasets import ImageFolder

    from fedhpc.data.augment import PhotoTransform
    from fedhpc.data.prepare import prepare
    from fedhpc.data.shards import ShardStore

    torch.set_num_threads(1)
    for name, size in (("as_they_are", None), ("at_224", 224)):
        prepare("image_folder", raw, folder / name, size=size)
    whole, small = ShardStore.open(folder / "as_they_are"), ShardStore.open(folder / "at_224")
    end = [t.ToTensor(), t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    random = [
        t.RandomResizedCrop(224, scale=(0.7, 1.0)), t.RandomHorizontalFlip(), t.ColorJitter(0.3, 0.3, 0.3, 0.3),
        t.RandomGrayscale(), *end,
    ]  # fmt: skip
    plain_peer = ImageFolder(str(raw), t.Compose([t.Resize((224, 224)), *end]))
    random_peer = ImageFolder(str(raw), t.Compose(random))
    plain, augmented = PhotoTransform(224, False), PhotoTransform(224, True)
    noise, rows = torch.Generator().manual_seed(0), endless(len(plain_peer))

    def peer(dataset: ImageFolder) -> None:
        torch.stack([dataset[i][0] for i in next(rows)])

    def ours(store: ShardStore, transform: PhotoTransform, train: bool) -> None:
        transform(torch.from_numpy(store.images(next(rows))), noise, train)

    found = alternate(
        {
            "plain": lambda: ours(small, plain, False), "plain_peer": lambda: peer(plain_peer),
            "augmented": lambda: ours(whole, augmented, True), "augmented_peer": lambda: peer(random_peer),
        }, blocks, 1,
    )  # fmt: skip
    medians = {name: statistics.median(values) for name, values in found.items()}
    return {
        "plain": medians["plain_peer"] / medians["plain"],
        "augmented": medians["augmented_peer"] / medians["augmented"],
        "milliseconds_per_image": {name: 1000 * value / 32 for name, value in medians.items()},
    }


def main() -> None:
    """Measure, print and, on request, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--only", default="steps,ranks,startup,photos")
    parser.add_argument("--mnist", type=Path, help="a prepared rotated_mnist folder")
    parser.add_argument("--photos", type=Path, help="class folders of JPEGs, 227 x 227")
    parser.add_argument("--blocks", type=int, default=12, help="for steps and photos")
    parser.add_argument("--steps", type=int, default=150, help="of each trial, for ranks")
    args = parser.parse_args()
    wanted, result = args.only.split(","), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if {"steps", "startup"} & set(wanted):
            from fedhpc.data.shards import ShardStore

            store = ShardStore.open(args.mnist or made_up_digits(folder / "digits"))
            if "steps" in wanted:
                result["steps"] = steps(store, args.blocks)
            if "startup" in wanted:
                result["startup"] = startup(store, 3)
        if "ranks" in wanted:
            result["ranks"] = ranks(folder, args.steps)
        if "photos" in wanted:
            result["photos"] = photos(args.photos or made_up_photos(folder / "raw"), folder, args.blocks)
    for key, value in result.items():
        print(key, json.dumps(value))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
