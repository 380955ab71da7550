"""Settings that have no effect in the combination they stand in: said once, never silently ignored."""

from __future__ import annotations

from collections.abc import Iterator

from fedhpc.config import RunConfig
from fedhpc.config.schema import Section, keys_of


def unused_settings(config: RunConfig, has_norms: bool | None = None) -> list[str]:
    """One line each: keys that differ from their defaults and change nothing, and what a choice gives up.

    Args:
        config: of the run.
        has_norms: whether the model has batch norm statistics; None: not known.
    """
    found = [*_idle(config), *_norms(config, has_norms), *config.algorithm.remarks(config.local.clip)]
    if config.aggregation.dtype == "float32":
        found.append("aggregation.dtype: float32 gives up equal bits on different numbers of ranks")
    if config.generalize.test_envs and config.aggregation.buffers == "keep_local":
        found.append("held-out environments are evaluated with the initial batch norm statistics: buffers stay local")
    return found


def _idle(config: RunConfig) -> Iterator[str]:
    local, personal, generalize, aggregation = config.local, config.personalize, config.generalize, config.aggregation
    if local.optimizer == "adam" and local.momentum:
        yield "local.momentum has no effect with local.optimizer: adam"
    inner = ("inner_lr", "inner_steps", "order", "delta")
    if personal.method != "maml":
        yield from _without_effect("personalize", personal, inner, f"with personalize.method: {personal.method}")
    elif personal.order != "hessian_free":
        yield from _without_effect("personalize", personal, inner[-1:], f"with personalize.order: {personal.order}")
    if not generalize.test_envs:
        keys = ("holdout_fraction", "stratified")
        yield from _without_effect("generalize", generalize, keys, "without generalize.test_envs")
    if aggregation.dtype == "float32":
        keys = ("grid_bits", "buffer_grid_bits")
        yield from _without_effect("aggregation", aggregation, keys, "with aggregation.dtype: float32")


def _norms(config: RunConfig, present: bool | None) -> Iterator[str]:
    """What becomes of batch norm statistics where they are not averaged."""
    policy = config.aggregation.buffers
    if policy == "average" or present is None:
        return
    if not present:
        yield f"aggregation.buffers: {policy} has no effect: the model has no batch norm statistics"
    elif policy == "keep_local":
        yield "model.safetensors will have the initial batch norm statistics: each client keeps its own"
    elif not config.model.freeze_bn:
        yield (
            "aggregation.buffers: keep_global evaluates with the initial batch norm statistics, training uses those "
            "of its batches; with model.freeze_bn: true both use the initial ones"
        )


def _without_effect(name: str, section: Section, keys: tuple[str, ...], why: str) -> Iterator[str]:
    """A line for each of some keys of a section that was set."""
    for key in keys_of(type(section)):
        if key.name in keys and getattr(section, key.name) != key.default:
            yield f"{name}.{key.name} has no effect {why}"
