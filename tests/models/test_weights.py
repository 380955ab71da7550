"""Starting weights from files of every kind, right and wrong."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedhpc import registry
from fedhpc.errors import ConfigError
from fedhpc.models.base import ModelOptions, Network
from fedhpc.models.weights import load_weights


def build(name: str = "mlp", shape: tuple[int, int, int] = (1, 4, 4), num_classes: int = 3) -> Network:
    return registry.load("fedhpc.models", name).MODEL(shape, num_classes, ModelOptions())


def save(state: dict[str, torch.Tensor], path: Path) -> str:
    if path.suffix == ".npz":
        np.savez(path, **{key: value.numpy() for key, value in state.items()})
    elif path.suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file(state, path)
    else:
        torch.save(state, path)
    return str(path)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors", ".npz"])
def test_every_file_type_fills_the_model_in_place(tmp_path: Path, suffix: str):
    source, model = build(), build().double()
    storage = [p.data_ptr() for p in model.parameters()]
    note = load_weights(model, save(source.state_dict(), tmp_path / f"w{suffix}"))
    assert note == f"loaded 4 of 4 tensors from {tmp_path / f'w{suffix}'}"
    assert [p.data_ptr() for p in model.parameters()] == storage
    for mine, theirs in zip(model.parameters(), source.parameters(), strict=True):
        assert mine.dtype == torch.float64
        assert torch.equal(mine, theirs.double())


def test_wrappers_of_training_scripts_are_opened(tmp_path: Path):
    source = build()
    state = {f"module.{key}": value for key, value in source.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": state}, tmp_path / "w.pt")
    model = build()
    load_weights(model, str(tmp_path / "w.pt"))
    assert torch.equal(model.classifier.weight, source.classifier.weight)


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1"])
def test_torchvision_files_load(tmp_path: Path, name: str):
    torchvision = pytest.importorskip("torchvision")
    reference = getattr(torchvision.models, name)(weights=None, num_classes=6).eval()
    path = save(reference.state_dict(), tmp_path / "w.pth")
    model = build(name, (3, 40, 40), 6).eval()
    load_weights(model, path)
    x = torch.rand(2, 3, 40, 40)
    if name == "resnet18":
        torch.testing.assert_close(model(x), reference(x), rtol=1e-5, atol=1e-6)
    else:
        maps = reference.classifier[1](reference.features(x))
        torch.testing.assert_close(model(x), maps.mean(dim=(2, 3)), rtol=1e-5, atol=1e-6)


def test_another_number_of_classes_leaves_a_fresh_head(tmp_path: Path):
    path = save(build(num_classes=5).state_dict(), tmp_path / "w.pt")
    model = build(num_classes=3)
    before = model.classifier.weight.detach().clone()
    note = load_weights(model, path)
    assert "classifier left at its fresh initialisation: the file has 5 classes, the model 3" in note
    assert torch.equal(model.classifier.weight, before)


def test_files_without_head_or_batch_counters_load(tmp_path: Path):
    source = build("resnet18", (3, 32, 32))
    state = {k: v for k, v in source.state_dict().items() if "num_batches" not in k and "classifier" not in k}
    assert "the file has none" in load_weights(build("resnet18", (3, 32, 32)), save(state, tmp_path / "w.npz"))


def test_what_does_not_fit_is_named_with_both_shapes(tmp_path: Path):
    def refused(state: dict[str, torch.Tensor]) -> str:
        path = save(state, tmp_path / "w.pt")
        with pytest.raises(ConfigError) as error:
            load_weights(build(), path)
        assert path in str(error.value)
        return str(error.value)

    good = build().state_dict()
    wrong = {**good, "body.0.weight": torch.zeros(64, 17)}
    assert "'body.0.weight' has shape (64, 17), the model needs (64, 16)" in refused(wrong)
    assert "lacks 'body.0.bias'" in refused({k: v for k, v in good.items() if k != "body.0.bias"})
    assert "has unknown 'extra'" in refused({**good, "extra": torch.zeros(1)})
    assert "lacks 'classifier.bias'" in refused({k: v for k, v in good.items() if k != "classifier.bias"})
    assert "'classifier.weight' has shape (3, 65)" in refused({**good, "classifier.weight": torch.zeros(3, 65)})
    assert "'body.0.bias' has 2 values that are NaN" in refused(
        {**good, "body.0.bias": torch.tensor([float("nan"), float("inf")])}
    )


def test_a_refused_file_leaves_the_model_untouched(tmp_path: Path):
    model = build()
    before = [p.detach().clone() for p in model.parameters()]
    state = {key: value + 1 for key, value in model.state_dict().items()}
    state["body.0.weight"] = torch.zeros(1, 1)
    with pytest.raises(ConfigError):
        load_weights(model, save(state, tmp_path / "w.pt"))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self):
        return (os.mkdir, (self.folder,))


def test_unsafe_pickles_do_not_run(tmp_path: Path):
    torch.save({"body.0.weight": Trap(tmp_path / "sprung")}, tmp_path / "w.pt")
    with pytest.raises(ConfigError, match="cannot be read safely"):
        load_weights(build(), str(tmp_path / "w.pt"))
    np.savez(tmp_path / "w.npz", weight=np.array([Trap(tmp_path / "sprung")], dtype=object))
    with pytest.raises(ConfigError, match=r"w\.npz: 'weight' is not an array of numbers"):
        load_weights(build(), str(tmp_path / "w.npz"))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ".npz"])
def test_damaged_files_are_named(tmp_path: Path, suffix: str):
    path = Path(save(build().state_dict(), tmp_path / f"w{suffix}"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ConfigError, match=rf"w\{suffix} cannot be read safely"):
        load_weights(build(), str(path))


def test_files_that_are_no_state_dict_are_named(tmp_path: Path):
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    torch.save({"epoch": 3}, tmp_path / "number.pt")
    (tmp_path / "w.bin").write_bytes(b"")
    for name, message in (("list.pt", "holds a list"), ("number.pt", "'epoch' is a int"), ("w.bin", "file types are")):
        with pytest.raises(ConfigError, match=message):
            load_weights(build(), str(tmp_path / name))


def test_missing_files_and_unknown_names():
    with pytest.raises(ConfigError, match=r"no file nowhere/w\.pt"):
        load_weights(build(), "nowhere/w.pt")
    with pytest.raises(ConfigError, match=r"did you mean 'IMAGENET1K_V2'.* IMAGENET1K_V1, IMAGENET1K_V2, DEFAULT$"):
        load_weights(build("resnet50", (3, 32, 32)), "IMAGENET1K_V3")
    with pytest.raises(ConfigError, match="Mlp has no published weights"):
        load_weights(build(), "IMAGENET1K_V1")


def test_a_published_name_is_taken_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A compute node without network finds the file that was put into torch's cache beforehand."""
    torchvision = pytest.importorskip("torchvision")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    url = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.url
    cached = tmp_path / "hub" / "checkpoints" / url.rsplit("/", 1)[-1]
    cached.parent.mkdir(parents=True)
    reference = torchvision.models.resnet18(weights=None)
    torch.save(reference.state_dict(), cached)
    model = build("resnet18", (3, 32, 32))
    assert "file has 1000 classes, the model 3" in load_weights(model, "IMAGENET1K_V1")
    assert torch.equal(model.conv1.weight, reference.conv1.weight)


def test_imagenet_squeezenet_knows_elephants_from_guitars(shared_data: Path):
    image = pytest.importorskip("PIL.Image")
    model = build("squeezenet1_1", (3, 224, 224), 1000).eval()
    load_weights(model, str(shared_data / "weights" / "squeezenet1_1-imagenet.npz"))
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    photos = shared_data / "PACS" / "pacs-mini" / "PACS" / "photo"
    # ImageNet: 101 tusker, 385 and 386 elephants; 402 acoustic and 546 electric guitar.
    for folder, right in (("elephant", {101, 385, 386}), ("guitar", {402, 546})):
        files = sorted((photos / folder).iterdir())[:6]
        pixels = [np.array(image.open(f).convert("RGB").resize((224, 224))) for f in files]
        x = (torch.from_numpy(np.stack(pixels)) / 255 - mean) / std
        with torch.no_grad():
            found = model(x.permute(0, 3, 1, 2)).argmax(1).tolist()
        assert sum(label in right for label in found) >= 4, (folder, found)
