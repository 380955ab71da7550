"""Given hyperparameters: those that no algorithm has, that make no sense, or that change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedhpc.config import Limits
from fedhpc.errors import ConfigError, nearest
from fedhpc.objectives.hparams import Value, space_of
from fedhpc.sweep.building import RESNETS, choose_model, input_size, setup_of
from fedhpc.sweep.estimate import DatasetFacts
from fedhpc.sweep.settings import SweepConfig

_POSITIVE, _AT_LEAST_0, _AT_LEAST_1 = Limits(above=0), Limits(at_least=0), Limits(at_least=1)
_SHARE = Limits(at_least=0, below=1)
_FINITE = Limits()
_LIMITS: Mapping[str, Limits] = {
    **dict.fromkeys(("lr", "lr_g", "lr_d", "mixup_alpha", "batch_mixup_alpha"), _POSITIVE),
    **dict.fromkeys(("weight_decay", "weight_decay_g", "weight_decay_d"), _AT_LEAST_0),
    **dict.fromkeys(("resnet_dropout", "vit_dropout", "mlp_dropout", "beta1"), _SHARE),
    **dict.fromkeys(("irm_lambda", "irm_penalty_anneal_iters", "groupdro_eta", "mldg_beta"), _AT_LEAST_0),
    **dict.fromkeys(("mmd_gamma", "lambda", "grad_penalty"), _AT_LEAST_0),
    **dict.fromkeys(("batch_size", "n_meta_test", "d_steps_per_g_step", "mlp_width", "linear_steps"), _AT_LEAST_1),
    "mlp_depth": Limits(at_least=2),
}
_OF_LATER_ALGORITHMS = ("dinov2", "vit", "vit_attn_tune", "vit_dropout", "lars", "linear_steps", "resnet50_augmix")
"""What the original logs for everyone, but none of the nine algorithms and none of our networks look at."""
_OF_RESNETS = ("resnet_dropout", "freeze_bn")
_REPLACED = {"lr": "lr_g and lr_d", "weight_decay": "weight_decay_g and weight_decay_d"}


def check_hparams(given: Mapping[str, Value], algorithms: tuple[str, ...]) -> None:
    """Refuse given hyperparameters that none of the algorithms has, or whose value is impossible.

    Raises:
        ConfigError: names the key, and the nearest known one or what is allowed.
    """
    known: dict[str, Value] = {}
    for algorithm in algorithms:
        known.update({name: hparam.default for name, hparam in space_of(algorithm).items()})
    for name, value in given.items():
        if name not in known:
            raise ConfigError(
                f"sweep.hparams has '{name}'{nearest(name, sorted(known))}; there are: {', '.join(sorted(known))}"
            )
        if problem := _problem(name, value, known[name]):
            raise ConfigError(f"sweep.hparams.{name} {problem}")


def _problem(name: str, value: Value, default: Value) -> str | None:
    """What is wrong with a value, or None."""
    if isinstance(default, bool) or isinstance(value, bool):
        if isinstance(default, bool) and isinstance(value, bool):
            return _useless(name, value, default)
        return f"must be {'true or false' if isinstance(default, bool) else 'a number'}, got {value}"
    limits = _LIMITS.get(name, _FINITE)
    problem = limits.problem(value)
    if isinstance(default, int) and not isinstance(value, int):
        return f"must be an integer{' ' if str(limits) else ''}{limits}, got {value}"
    if problem:
        return problem if str(limits) else f"must be finite, got {value}"
    return _useless(name, value, default)


def _useless(name: str, value: Value, default: Value) -> str | None:
    if name not in _OF_LATER_ALGORITHMS or value in (default, False):
        return None
    return "belongs to algorithms and networks that fedhpc does not have; it would change nothing"


def unused_hparams(config: SweepConfig, facts: Mapping[str, DatasetFacts]) -> Iterator[str]:
    """Given hyperparameters that do not act on some algorithms or datasets; one line each.

    Args:
        config: of the sweep.
        facts: of its datasets.
    """
    sweep = config.sweep
    adversarial = [a for a in sweep.algorithms if "lr_g" in space_of(a)]
    for name, others in _REPLACED.items():
        if name in sweep.hparams and adversarial:
            yield f"hparams.{name} does not act on {', '.join(adversarial)}, which have {others}"
    values = {name: hparam.default for name, hparam in space_of(sweep.algorithms[0]).items()}
    for name in _OF_RESNETS:
        given = {**values, **sweep.hparams}
        flat = [d for d in sweep.roots if not _is_resnet(config, given, facts[d])]
        if name in sweep.hparams and flat:
            yield f"hparams.{name} does not act on {', '.join(flat)}, whose network is neither resnet18 nor resnet50"
    if "n_meta_test" in sweep.hparams and sweep.profile == "paper":
        yield "hparams.n_meta_test does not act in profile paper, in which mldg pairs environments in a ring"
    if "resnet18" in sweep.hparams and config.model.name != "auto":
        yield f"hparams.resnet18 does not act where model.name is {config.model.name}"


def _is_resnet(config: SweepConfig, values: Mapping[str, Value], facts: DatasetFacts) -> bool:
    setup = setup_of(config)
    size = input_size(setup, facts.height, facts.width, facts.channels)
    return choose_model(setup, values, *size).name in RESNETS
