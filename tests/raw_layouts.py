"""Small raw folders in the layout of each source, with pixels that are known independently of the package."""

from __future__ import annotations

import gzip
import pickle
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def pixels(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save_png(path: Path, image: np.ndarray) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, "PNG")


def write_idx(path: Path, values: np.ndarray) -> None:
    content = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def make_mnist(folder: Path, num: int = 20) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, stem in enumerate(("train", "t10k")):
        write_idx(folder / f"{stem}-images-idx3-ubyte.gz", pixels(seed, num, 28, 28))
        write_idx(folder / f"{stem}-labels-idx1-ubyte", (np.arange(num) % 10).astype(np.uint8))
    return folder


def make_cifar_batches(folder: Path, num: int = 10) -> Path:
    target = folder / "cifar-10-batches-py"
    target.mkdir(parents=True)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for seed, name in enumerate(names):
        batch = {"data": pixels(seed, num, 3072), "labels": [i % 10 for i in range(num)]}
        (target / name).write_bytes(pickle.dumps(batch, protocol=2))
    (target / "batches.meta").write_bytes(pickle.dumps({"label_names": list(CIFAR_CLASSES)}, protocol=2))
    return folder


def make_cifar_folders(folder: Path) -> Path:
    for part, split in enumerate(("train", "test")):
        for c, name in enumerate(CIFAR_CLASSES):
            save_png(folder / "cifar10" / split / name / "0000.png", pixels(100 * part + c, 32, 32, 3))
    return folder


def make_class_folders(folder: Path) -> Path:
    for c, name in enumerate(("ant", "bee")):
        for i in range(3):
            save_png(folder / name / f"{i}.png", pixels(10 * c + i, 6, 5, 3))
    return folder


def make_environment_folders(folder: Path) -> Path:
    for e, environment in enumerate(("paper", "wood")):
        for c, name in enumerate(("ant", "bee")):
            for i in range(2):
                save_png(folder / environment / name / f"{i}.png", pixels(100 * e + 10 * c + i, 6, 5, 3))
    return folder


def make_arrays(folder: Path) -> Path:
    folder.mkdir(parents=True)
    np.savez(folder / "some.npz", x=pixels(0, 12, 3, 7, 8), y=np.arange(12) % 4)
    return folder / "some.npz"


def make_domains(folder: Path, environments: Sequence[str], classes: Sequence[str]) -> Path:
    for e, environment in enumerate(environments):
        for c, name in enumerate(classes):
            for i in range(2):
                save_png(folder / environment / name / f"{i}.png", pixels(1000 * e + 10 * c + i, 6, 5, 3))
    return folder


def make_pacs(folder: Path) -> Path:
    classes = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    make_domains(folder / "kfold", ("art_painting", "cartoon", "photo", "sketch"), classes)
    return folder


def make_vlcs(folder: Path) -> Path:
    classes = ("bird", "car", "chair", "dog", "person")
    return make_domains(folder, ("Caltech101", "LabelMe", "SUN09", "VOC2007"), classes)


def make_office_home(folder: Path) -> Path:
    environments = ("Art", "Clipart", "Product", "Real World")
    make_domains(folder / "OfficeHomeDataset_10072016", environments, ("Alarm_Clock", "TV", "Webcam"))
    return folder


def make_domain_net(folder: Path) -> Path:
    environments = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
    return make_domains(folder, environments, ("The_Eiffel_Tower", "ant", "t-shirt"))


def make_terra_incognita(folder: Path) -> Path:
    environments = tuple(f"location_{n}" for n in (38, 43, 46, 100))
    make_domains(folder / "terra_incognita", environments, ("bird", "cat", "empty", "squirrel"))
    return folder


def make_medical(folder: Path, name: str) -> Path:
    from tests.medical_layouts import EXAMPLES as MEDICAL  # it makes its images with what stands here

    return MEDICAL[name](folder)


_MEDICAL = ("ham10000", "fitzpatrick17k", "chexpert", "chexcovid", "papila", "ol3i", "medical_table")

EXAMPLES: dict[str, Callable[[Path], Path]] = {
    "arrays": make_arrays,
    "mnist": make_mnist,
    "colored_mnist": make_mnist,
    "rotated_mnist": make_mnist,
    "pacs": make_pacs,
    "vlcs": make_vlcs,
    "office_home": make_office_home,
    "domain_net": make_domain_net,
    "terra_incognita": make_terra_incognita,
    "cifar10": make_cifar_batches,
    "image_folder": make_environment_folders,
    **{name: partial(make_medical, name=name) for name in _MEDICAL},
}
"""One raw folder per source; a source without one here still passes the part of its contract that needs none."""
