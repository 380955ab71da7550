"""Starting weights from a file (torch, safetensors, npz) or from torchvision by name; nothing is unpickled unsafely."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from fedhpc.errors import ConfigError, nearest
from fedhpc.models.base import Network, repeat_channels

_WRAPPERS = ("state_dict", "model_state_dict", "model")  # keys under which training scripts tuck the state dict away
_HEAD = ("classifier.weight", "classifier.bias")
_SHOWN = 3


def load_weights(model: Network, spec: str) -> str:
    """Copy weights into a model in place and return one line that says what was loaded and what was not.

    Keys may be torchvision's or ours. A classifier for another number of classes, or none, leaves the model's own at
    its fresh initialisation; a first convolution for other input channels is repeated (`repeat_channels`); missing
    batch counters (`num_batches_tracked`) stay as they are. Everything else must fit exactly.

    Args:
        model: the model to fill; its parameters keep their identity, dtype and device.
        spec: path of a .pt, .pth, .safetensors or .npz file, or a torchvision weights name ("IMAGENET1K_V1").

    Raises:
        ConfigError: naming the file, the key and both shapes.
    """
    state, notes = _fit(model, _our_keys(model, _read(model, spec)), spec)
    own = model.state_dict()
    with torch.no_grad():
        for key, value in state.items():
            own[key].copy_(value)
    return "; ".join([f"loaded {len(state)} of {len(own)} tensors from {spec}", *notes])


def _read(model: Network, spec: str) -> dict[str, Tensor]:
    path = Path(spec).expanduser()
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        if path.is_file():
            raise ConfigError(f"model.weights: {spec}: known file types are {', '.join(_READERS)}")
        return _published(model, spec)
    if not path.is_file():
        raise ConfigError(f"model.weights: no file {spec}")
    try:
        state = reader(path)
    except ConfigError:
        raise
    except Exception as error:  # the readers raise anything from KeyError to UnpicklingError on damaged files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"model.weights: {spec} cannot be read safely as {path.suffix}: {reason}") from error
    for key, value in state.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            bad = int((~value.isfinite()).sum())
            raise ConfigError(f"model.weights: {spec}: '{key}' has {bad} values that are NaN or infinite")
    return state


def _read_torch(path: Path) -> dict[str, Tensor]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping):
        raise ConfigError(f"model.weights: {path} holds a {type(content).__name__}, not a state dict")
    for key, value in content.items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"model.weights: {path}: '{key}' is a {type(value).__name__}, not a tensor")
    return {str(key): value for key, value in content.items()}


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return dict(load_file(path))


def _read_npz(path: Path) -> dict[str, Tensor]:
    import numpy as np

    state = {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            try:
                state[key] = torch.from_numpy(arrays[key])
            except (ValueError, TypeError) as error:
                raise ConfigError(f"model.weights: {path}: '{key}' is not an array of numbers ({error})") from error
    return state


_READERS: dict[str, Callable[[Path], dict[str, Tensor]]] = {
    ".pt": _read_torch,
    ".pth": _read_torch,
    ".safetensors": _read_safetensors,
    ".npz": _read_npz,
}


def _published(model: Network, name: str) -> dict[str, Tensor]:
    """Fetch torchvision's weights `name` (or take them from its cache)."""
    if model.torchvision_name is None:
        raise ConfigError(
            f"model.weights: no file {name}, and {type(model).__name__} has no published weights; "
            f"file types are {', '.join(_READERS)}"
        )
    import torchvision

    choices = torchvision.models.get_model_weights(model.torchvision_name)
    known = list(choices.__members__)
    if name not in known:
        raise ConfigError(
            f"model.weights: '{name}' is neither a file nor torchvision weights of {model.torchvision_name}"
            f"{nearest(name, known)}; there are: {', '.join(known)}"
        )
    weights = choices[name]
    try:
        state: dict[str, Tensor] = weights.get_state_dict(progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"model.weights: {name} could not be fetched ({error}); on a machine with network save {weights.url} "
            f"and put it into {torch.hub.get_dir()}/checkpoints, or give its path"
        ) from error
    return state


def _our_keys(model: Network, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename torchvision's keys, and drop the `module.` that a data-parallel wrapper puts before every key."""
    if state and all(key.startswith("module.") for key in state):
        state = {key.removeprefix("module."): value for key, value in state.items()}

    def ours(key: str) -> str:
        for theirs, prefix in model.foreign.items():
            if key.startswith(theirs):
                return prefix + key.removeprefix(theirs)
        return key

    return {ours(key): value for key, value in state.items()}


def _fit(model: Network, state: dict[str, Tensor], spec: str) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors that fit the model's own, and notes on those that were adapted or left out."""
    own = model.state_dict()
    notes = []
    # A 1x1 convolution over the classes is a linear layer.
    if "classifier.weight" in state and state["classifier.weight"].shape[2:] == (1, 1):
        state = {**state, "classifier.weight": state["classifier.weight"].flatten(1)}
    if (reason := _head_misfit(own, state)) is not None:
        notes.append(f"classifier left at its fresh initialisation: {reason}")
        state = {key: value for key, value in state.items() if key not in _HEAD}
    optional = {key for key in own if key.endswith("num_batches_tracked")} | (set(_HEAD) if notes else set())
    _compare_keys(spec, set(own) - optional, set(own), set(state))
    if model.stem is not None:
        kernel, wanted = state[model.stem], own[model.stem].shape
        alike = kernel.dim() == 4 and kernel.shape[:1] + kernel.shape[2:] == wanted[:1] + wanted[2:]
        if alike and 0 < kernel.shape[1] != wanted[1]:
            state = {**state, model.stem: repeat_channels(kernel, wanted[1])}
            notes.append(f"first convolution repeated from {kernel.shape[1]} to {wanted[1]} channels")
    for key, value in state.items():
        shape, needed = tuple(value.shape), tuple(own[key].shape)
        if shape != needed:
            raise ConfigError(f"model.weights: {spec}: '{key}' has shape {shape}, the model needs {needed}")
    return state, notes


def _head_misfit(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str | None:
    """Say why the file's classifier cannot be used, or None if it can (or is wrong in another way than its classes)."""
    if not any(key in state for key in _HEAD):
        return "the file has none"
    wanted = own["classifier.weight"].shape
    weight, bias = (state.get(key) for key in _HEAD)
    if weight is None or bias is None or weight.shape[1:] != wanted[1:] or bias.shape != weight.shape[:1]:
        return None
    return None if weight.shape == wanted else f"the file has {weight.shape[0]} classes, the model {wanted[0]}"


def _compare_keys(spec: str, needed: set[str], allowed: set[str], found: set[str]) -> None:
    for what, keys in (("lacks", needed - found), ("has unknown", found - allowed)):
        if keys:
            shown = ", ".join(f"'{key}'" for key in sorted(keys)[:_SHOWN])
            more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
            raise ConfigError(f"model.weights: {spec} {what} {shown}{more}; it is not a file for this model")
