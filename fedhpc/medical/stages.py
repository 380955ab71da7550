"""A medical run as stages in sequence: the tasks, each cut in two where the classifier is trained apart."""

from __future__ import annotations

from dataclasses import dataclass

from fedhpc.medical.recipes._base import Recipe


@dataclass(frozen=True)
class Stage:
    """Rounds that share data and a way of training.

    Attributes:
        task: number of the task.
        first: rounds done before it, all tasks counted.
        end: rounds done after it.
        head: whether only the classifier learns, on class-balanced batches.
        reset: whether it begins with a fresh classifier.
        examined: whether a task ends with it.
    """

    task: int
    first: int
    end: int
    head: bool = False
    reset: bool = False
    examined: bool = True


@dataclass(frozen=True)
class Schedule:
    """When a task's models are evaluated: every `every` rounds, and at its end.

    Attributes:
        rounds: of each task.
        evaluations: about how many per task.
    """

    rounds: int
    evaluations: int

    @property
    def every(self) -> int:
        """Rounds between evaluations."""
        return max(self.rounds // self.evaluations, 1)

    @property
    def most(self) -> int:
        """Evaluations of a task before its end."""
        return (self.rounds - 1) // self.every

    @property
    def count(self) -> int:
        """Evaluations of a task, with that at its end."""
        return self.most + 1

    def due(self, begun: int) -> bool:
        """Whether an evaluation comes after so many rounds of a task."""
        return begun > 0 and begun % self.every == 0


def stages(recipe: Recipe, num_tasks: int, rounds: int) -> list[Stage]:
    """The stages of a run with `rounds` rounds per task."""
    found = []
    head = recipe.head_stage(rounds)
    cut = head.first_round if head is not None else None
    for task in range(num_tasks):
        start = task * rounds
        if head is None or cut is None or not 0 < cut < rounds:
            found.append(Stage(task, start, start + rounds))
            continue
        found.append(Stage(task, start, start + cut, examined=False))
        found.append(Stage(task, start + cut, start + rounds, head=True, reset=head.reset))
    return found
