"""Parts of long-tail and averaging baselines that act on models and weights: losses, heads, batch-norm statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedhpc.models.base import Network


def effective_weights(samples_per_class: Tensor, beta: float) -> Tensor:
    """Class weights (1 - β)/(1 - β^n), scaled to sum to the number of classes (Cui et al., 2019): float64 [C]."""
    weights = (1 - beta) / (1 - beta ** samples_per_class.double())
    return weights / weights.sum() * len(weights)


def class_balanced_loss(logits: Tensor, labels: Tensor, samples_per_class: Tensor, beta: float) -> Tensor:
    """Binary cross-entropy of the softmax scores, each sample weighted by its class: mean over [batch, classes]."""
    weights = effective_weights(samples_per_class, beta).to(logits)[labels][:, None].expand_as(logits)
    wanted = functional.one_hot(labels, logits.shape[1]).to(logits)
    return functional.binary_cross_entropy(logits.softmax(1), wanted, weight=weights)


def tau_normalized(weight: Tensor, p: float = 2.0, tau: float = 1.0) -> Tensor:
    """Rows of a classifier [classes, features] divided by their p-norm to the power τ (Kang et al., 2020)."""
    return weight / torch.linalg.vector_norm(weight, ord=p, dim=1, keepdim=True) ** tau


def fairfed_weights(weights: Sequence[float], accuracies: Sequence[float], overall: float, beta: float) -> list[float]:
    """One update of FairFed's client weights: w - β(|a_k - a| - mean), divided by their sum (Ezzeldin et al., 2023)."""
    gaps = [abs(accuracy - overall) for accuracy in accuracies]
    mean = sum(gaps) / len(gaps)
    moved = [w - beta * (gap - mean) for w, gap in zip(weights, gaps, strict=True)]
    return [w / sum(moved) for w in moved]


def reset_head(model: Network, generator: torch.Generator) -> None:
    """Draw the classifier anew, from its framework default: uniform within ±1/√features."""
    bound = model.num_features**-0.5
    with torch.no_grad():
        for values in model.classifier.parameters():
            values.copy_(torch.empty(values.shape, dtype=values.dtype).uniform_(-bound, bound, generator=generator))


def head_names(model: Network) -> frozenset[str]:
    """Names of the classifier's parameters: what the second stage of CRT trains, and what personalised heads keep."""
    return frozenset(f"classifier.{name}" for name, _ in model.classifier.named_parameters())


def refresh_batch_norm(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Estimate batch-norm statistics anew: plain means over the batches of batch mean and unbiased batch variance.

    Args:
        model: left in its mode and with its momenta.
        batches: model inputs, each of at least two samples.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    momenta, mode = [norm.momentum for norm in norms], model.training
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    with torch.no_grad():
        for x in batches:
            model(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(mode)
