"""What a recipe says about local training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from fedhpc.config import Section
from fedhpc.data.balanced import Keys, TaskPasses
from fedhpc.data.batches import BatchPlan


@dataclass(frozen=True)
class Setting:
    """What a recipe's batches need to know of the run.

    Attributes:
        seed: of the run.
        batch_size: samples per step.
        steps: local steps per round.
        rounds_per_task: rounds of each task.
        labels: (client, task) -> classes of its training samples of that task.
        groups: the same for demographic groups.
        num_memory: (client, task) -> samples of earlier tasks in its memory.
    """

    seed: int
    batch_size: int
    steps: int
    rounds_per_task: int
    labels: Keys
    groups: Keys
    num_memory: Callable[[int, int], int] = lambda client, task: 0


@dataclass(frozen=True)
class HeadStage:
    """A second stage in which only the classifier learns.

    Attributes:
        first_round: of each task; None interleaves: every round is as many steps of all layers and then of the head.
        reset: draw the classifier anew when the stage begins, the same in all clients.
        balanced: class-balanced batches.
    """

    first_round: int | None
    reset: bool
    balanced: bool


@dataclass(frozen=True)
class Memory:
    """What a client keeps of finished tasks: `capacity` samples (None: all) by a policy (`fedhpc.data.balanced`)."""

    capacity: int | None
    policy: Literal["reservoir", "ring"]


@dataclass(frozen=True)
class Averaging:
    """Averaging of a client's weights over steps (`fedhpc.medical.swad`)."""

    num_converge: int
    num_tolerance: int
    tolerance: float
    compat: bool
    refresh_batches: int
    evaluations: int = 10


@dataclass(frozen=True, kw_only=True)
class Recipe(Section):
    """Common numbers; subclasses say what is special.

    Attributes:
        title: what reports call it.
        federated: whether there is one common model; else every client keeps its own.
        objective: name of the local objective.
        memory: what is kept of finished tasks.
        averaging: of weights over steps.
    """

    order: Annotated[Literal["shuffled", "stored"], "stored: the same batches in every pass, as the original"] = (
        "shuffled"
    )
    momentum: Annotated[Literal["keep", "reset"], "of each client, from round to round"] = "keep"
    head: Annotated[Literal["shared", "own"], "own: classifiers stay with their clients"] = "shared"

    classes: Annotated[Literal["all", "environment"], "environment: own heads know the classes of theirs only"] = "all"

    title: ClassVar[str] = ""
    federated: ClassVar[bool] = True
    objective: ClassVar[str] = "erm"

    @property
    def own_weights(self) -> bool:
        """Whether clients keep weights of their own: the whole model, or the classifier."""
        return not self.federated or self.head == "own"

    @property
    def memory(self) -> Memory | None:
        """See the class."""
        return None

    @property
    def averaging(self) -> Averaging | None:
        """See the class."""
        return None

    def head_stage(self, rounds_per_task: int) -> HeadStage | None:
        """The second stage, if there is one."""
        return None

    def batches(self, setting: Setting) -> BatchPlan:
        """Minibatches of all layers' training."""
        return self.passes(setting)

    def passes(self, setting: Setting, keys: Keys | None = None, batch_size: int | None = None) -> TaskPasses:
        """Passes over the current task, plain or balanced by `keys`."""
        size = batch_size or setting.batch_size
        return TaskPasses(setting.seed, size, setting.steps, setting.rounds_per_task, self.order, keys)
