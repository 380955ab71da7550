"""Every key of a run's configuration: its type, its limits, its default and one line of help."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fedhpc import registry
from fedhpc.config.load import from_tree
from fedhpc.config.schema import Limits, NameIn, Plugin, Section, plugin_name, to_tree
from fedhpc.config.yamltext import to_yaml
from fedhpc.errors import ConfigError

_POSITIVE = Limits(above=0)
_AT_LEAST_0 = Limits(at_least=0)
_AT_LEAST_1 = Limits(at_least=1)
_SHARE = Limits(above=0, at_most=1)
_PROBABILITY = Limits(at_least=0, below=1)
_GRID_BITS = Limits(at_least=8, at_most=48)


@dataclass(frozen=True)
class TransformConfig(Section):
    """Pixels to model input: (pixel / pixel_max - mean) / std per channel; flip and crop only in training."""

    mean: Annotated[tuple[float, ...] | None, "per channel, of pixels scaled to [0, 1]; null: 0"] = None
    std: Annotated[tuple[float, ...] | None, _POSITIVE, "per channel; null: 1"] = None
    flip: Annotated[bool, "mirror left and right at random"] = False
    crop_pad: Annotated[int, _AT_LEAST_0, "random crops after padding with this many zeros"] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mean is not None and self.std is not None and len(self.mean) != len(self.std):
            raise ConfigError(f"std must have as many numbers as mean ({len(self.mean)}), got {len(self.std)}")


@dataclass(frozen=True)
class DataConfig(Section):
    """Which images, and how they are read."""

    dataset: Annotated[str, "name of the dataset; 'digits' needs no files"] = "digits"
    root: Annotated[str | None, "folder that `fedhpc prepare` wrote; null for an embedded dataset"] = None
    memory: Annotated[Literal["mapped", "copy"], "map the shards or copy them into each rank"] = "mapped"
    transform: TransformConfig = field(default_factory=TransformConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.root is None:
            problem = NameIn("fedhpc.data.sources").problem(self.dataset)
            if problem:
                raise ConfigError(f"dataset {problem}")
            if not registry.load("fedhpc.data.sources", self.dataset).SOURCE.embedded:
                raise ConfigError(f"root is required: '{self.dataset}' is not embedded; run `fedhpc prepare` first")


@dataclass(frozen=True)
class ModelConfig(Section):
    """The network."""

    name: Annotated[str, NameIn("fedhpc.models"), "file name in fedhpc/models"] = "mlp"
    weights: Annotated[str | None, "initial weights: a file or a torchvision weights name"] = None
    freeze_bn: Annotated[bool, "batch norm stays in evaluation mode"] = False
    dropout: Annotated[float, _PROBABILITY, "before the classifier"] = 0.0
    hidden: Annotated[tuple[int, ...], _AT_LEAST_1, "widths of the mlp's hidden layers"] = (64,)
    dtype: Annotated[Literal["float32", "float64"], "of weights and computations"] = "float32"


@dataclass(frozen=True)
class PersonalizeConfig(Section):
    """How the model is trained to be adapted to a client, and adapted before it is evaluated there."""

    method: Annotated[Literal["none", "maml", "proto"], "the local objective follows from it"] = "none"
    inner_lr: Annotated[float, _POSITIVE, "maml: learning rate of the inner steps, in training and evaluation"] = 0.01
    inner_steps: Annotated[int, _AT_LEAST_1, "maml: inner steps, in training and evaluation"] = 1
    order: Annotated[Literal["full", "first", "hessian_free"], "maml: treatment of second derivatives"] = "full"
    delta: Annotated[float, _POSITIVE, "maml, hessian_free: step of the central difference"] = 1e-3


@dataclass(frozen=True)
class LocalConfig(Section):
    """One client's work in one round; exactly one of `epochs` and `steps` (neither: one epoch)."""

    objective: Annotated[str, NameIn("fedhpc.objectives"), "file name in fedhpc/objectives"] = "erm"
    optimizer: Annotated[Literal["sgd", "adam"], "of the clients' steps"] = "sgd"
    lr: Annotated[float, _POSITIVE, "learning rate of the first round"] = 0.1
    lr_decay: Annotated[float, _POSITIVE, "factor per round"] = 1.0
    momentum: Annotated[float, _PROBABILITY, "of sgd"] = 0.0
    weight_decay: Annotated[float, _AT_LEAST_0, "times the weights is added to the gradient"] = 0.0
    clip: Annotated[float | None, _POSITIVE, "largest L2 norm of the whole gradient"] = None
    epochs: Annotated[int | None, _AT_LEAST_1, "passes over a client's samples per round; null: 1, or steps"] = None
    steps: Annotated[int | None, _AT_LEAST_1, "steps per round, the same for all clients, in place of epochs"] = None
    batch_size: Annotated[int, _AT_LEAST_1, "samples per step; per environment, where those have their own"] = 50
    batches: Annotated[
        Literal["auto", "mixed", "per_environment"],
        "one minibatch a step, or one of each environment of the client; auto: what the objective wants",
    ] = "auto"
    hparams: Annotated[dict[str, bool | int | float], "the objective's own hyperparameters; missing: defaults"] = field(
        default_factory=dict
    )
    profile: Annotated[Literal["paper", "head"], "variant of groupdro, mldg, dann and cdann"] = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is not None and self.steps is not None:
            raise ConfigError(f"steps ({self.steps}) and epochs ({self.epochs}) exclude each other; set one to null")
        if self.epochs is None and self.steps is None:
            object.__setattr__(self, "epochs", 1)


@dataclass(frozen=True)
class GeneralizeConfig(Section):
    """Environments that no client has and every evaluation is tested on."""

    test_envs: Annotated[tuple[int, ...], _AT_LEAST_0, "numbers of the environments that are held out"] = ()
    holdout_fraction: Annotated[float, Limits(above=0, below=1), "share of each environment for validation"] = 0.2
    stratified: Annotated[bool, "split every class in the same proportion"] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.test_envs)) < len(self.test_envs):
            raise ConfigError(f"test_envs names an environment twice: {list(self.test_envs)}")


@dataclass(frozen=True)
class CohortConfig(Section):
    """How many clients take part in a round; neither key: all of them."""

    size: Annotated[int | None, _AT_LEAST_1, "number of clients"] = None
    fraction: Annotated[float | None, _SHARE, "share of the clients"] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is not None and self.fraction is not None:
            raise ConfigError(f"size ({self.size}) and fraction ({self.fraction}) exclude each other; set one to null")


@dataclass(frozen=True)
class EvaluateConfig(Section):
    """When and which model is evaluated on every client's own test data."""

    every: Annotated[int, _AT_LEAST_1, "rounds between evaluations"] = 1
    model: Annotated[
        Literal["broadcast_next", "avg_selected", "avg_all"],
        "broadcast_next: what is sent next; avg_selected: mean of participants' models; avg_all: of all latest ones",
    ] = "broadcast_next"
    target_accuracy: Annotated[float | None, _SHARE, "mean client accuracy (a fraction) to be reached"] = None
    stop_at_target: Annotated[bool, "end the run there; false: go on to the last round"] = True
    batch_size: Annotated[int, _AT_LEAST_1, "samples at a time"] = 256


@dataclass(frozen=True)
class AggregationConfig(Section):
    """How the clients' vectors are summed."""

    dtype: Annotated[Literal["float64", "float32"], "float64: the same bits on any number of ranks"] = "float64"
    grid_bits: Annotated[int, _GRID_BITS, "sums are exact multiples of 2^-grid_bits"] = 40
    buffer_grid_bits: Annotated[int | None, _GRID_BITS, "the same for batch norm statistics; null: grid_bits"] = None
    buffers: Annotated[
        Literal["average", "keep_local", "keep_global"],
        "batch norm statistics; keep_local: each client its own (FedBN); keep_global: as they start",
    ] = "average"
    reduce: Annotated[Literal["auto", "flat", "hierarchical"], "sum on each node first; auto: if it pays"] = "auto"
    chunk: Annotated[int | None, _AT_LEAST_1, "elements per MPI call; null: 2^30"] = None


@dataclass(frozen=True)
class CheckpointConfig(Section):
    """When the run is saved."""

    every: Annotated[int, _AT_LEAST_0, "rounds between checkpoints; 0: only on a signal"] = 0
    keep: Annotated[int, _AT_LEAST_1, "newest checkpoints that are kept"] = 2


@dataclass(frozen=True)
class DeviceConfig(Section):
    """What each rank computes on."""

    name: Annotated[str, "auto, cpu, cuda or cuda:N"] = "auto"
    threads: Annotated[int | None, _AT_LEAST_1, "per rank; null: a fair share of the cores"] = None
    deterministic: Annotated[bool, "only kernels that give the same bits every time"] = True
    client_state_gib: Annotated[float, _AT_LEAST_0, "memory per rank for client state; beyond it a file in TMPDIR"] = (
        4.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.name):
            raise ConfigError(f"name must be one of auto, cpu, cuda, cuda:N, got '{self.name}'")


@dataclass(frozen=True)
class ServerConfig(Section):
    """The rank that aggregates."""

    hosts_clients: Annotated[bool, "rank 0 trains clients too"] = True


@dataclass(frozen=True, kw_only=True)
class RunConfig(Section):
    """One federated run: the YAML of `fedhpc run`."""

    rounds: Annotated[int, _AT_LEAST_1, "rounds at most"]
    seed: Annotated[int, Limits(at_least=0, below=2**63), "of everything random; a study has seeds"] = 0
    placement: Annotated[Literal["balanced", "pinned"], "pinned: clients never leave their rank"] = "balanced"
    on_divergence: Annotated[Literal["skip", "stop"], "what to do with a client whose weights blow up"] = "skip"
    warmup_rounds: Annotated[int, _AT_LEAST_0, "rounds run and thrown away before the clock starts"] = 0
    on_rank_loss: Annotated[
        Literal["abort", "continue"], "continue: survivors redo the round (needs mpirun --with-ft ulfm of Open MPI 5)"
    ] = "abort"
    hang_seconds: Annotated[float, _AT_LEAST_0, "a rank without progress for so long ends the job; 0: never"] = 1800.0
    data: DataConfig = field(default_factory=DataConfig)
    partition: Annotated[Any, Plugin("fedhpc.data.partitions", "kind", "PARTITION")]
    model: ModelConfig = field(default_factory=ModelConfig)
    algorithm: Annotated[Any, Plugin("fedhpc.federated.algorithms", "name", "ALGORITHM", default="fedavg")]
    local: LocalConfig = field(default_factory=LocalConfig)
    cohort: CohortConfig = field(default_factory=CohortConfig)
    personalize: PersonalizeConfig = field(default_factory=PersonalizeConfig)
    generalize: GeneralizeConfig = field(default_factory=GeneralizeConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    aggregation: AggregationConfig = field(default_factory=AggregationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    server: ServerConfig = field(default_factory=ServerConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        local, personal = self.local, self.personalize.method
        if personal != "none" and local.objective != "erm":
            raise ConfigError(
                f"local.objective is '{local.objective}' but personalize.method '{personal}' brings its own objective; "
                "set one of them to its default"
            )
        if personal != "none" and self.generalize.test_envs:
            raise ConfigError(
                f"generalize.test_envs holds environments out, where personalize.method '{personal}' has no samples to "
                "adapt to; set one of them to its default"
            )
        self._check_full_gradient(f"personalize.method '{personal}'", personal == "none")
        self._check_full_gradient(f"local.objective '{local.objective}'", local.objective == "erm")
        check = getattr(self.algorithm, "check_local", None)
        if check is not None:
            check(local.optimizer, local.momentum)

    def _check_full_gradient(self, what: str, plain: bool) -> None:
        """Refuse a rule that asks for the gradient on all local samples where an objective has none."""
        if not plain and getattr(self.algorithm, "takes_full_gradient", False):
            raise ConfigError(
                f"algorithm.option 1 takes the gradient on all local samples, which {what} does not define; "
                "use option 2"
            )

    @property
    def partition_kind(self) -> str:
        """Name of the partition plug-in."""
        return plugin_name(self.partition)

    @property
    def algorithm_name(self) -> str:
        """Name of the algorithm plug-in."""
        return plugin_name(self.algorithm)

    def to_dict(self) -> dict[str, Any]:
        """The resolved configuration as plain values in the shape of its YAML."""
        return to_tree(self)

    def to_yaml(self) -> str:
        """The resolved configuration as YAML that loads back to an equal one."""
        return to_yaml(self.to_dict())

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any], source: str = "configuration") -> RunConfig:
        """Rebuild what `to_dict` gave, checking it again; `source` is named in errors."""
        return from_tree(cls, tree, source)
