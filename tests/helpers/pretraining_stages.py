"""Processes that are stopped between two stages of pretraining."""

from collections.abc import Callable
from typing import Any, NamedTuple

from faults import Fault

from las.training import pretraining, setup
from las.training.checkpointing import Checkpointer
from las.training.trainer import Trainer


class Stage(NamedTuple):
    """Something happens once at the end of a stage, or behind it."""

    last: int
    """Its last step."""
    happens: Fault

    def after(self, owner: Any, name: str, due: Callable[..., bool]) -> None:
        """After the first call of a function for which it is due, given what it gave and was given."""
        original, done = getattr(owner, name), list[bool]()

        def called(*args: Any, **options: Any) -> Any:
            found = original(*args, **options)
            if not done and due(found, *args):
                done.append(True)
                self.happens()
            return found

        setattr(owner, name, called)

    def behind(self, owner: Any, name: str) -> None:
        """After the first call behind the end of the stage."""
        over = list[bool]()
        self._replace(happens=lambda: over.append(True)).after(Trainer, "fit", lambda _, it: it.state.step == self.last)
        self.after(owner, name, lambda *_: bool(over))


def in_the_last_save(stage: Stage) -> None:
    stage.after(Checkpointer, "save", lambda _, checkpointer, state: state.step == stage.last)


def after_the_last_answer(stage: Stage) -> None:
    """When the stage looks for signals no more, and has not left them to those around it."""
    stage.after(Trainer, "_finished", lambda finished, trainer: finished and trainer.state.step == stage.last)


def between(stage: Stage) -> None:
    stage.after(Trainer, "fit", lambda _, trainer: trainer.state.step == stage.last)


def while_it_is_built(stage: Stage) -> None:
    stage.behind(setup, "build_model")


def while_it_takes_over(stage: Stage) -> None:
    stage.behind(pretraining, "transfer_parameters")


def in_the_first_update(stage: Stage) -> None:
    stage.after(Trainer, "_start_update", lambda _, trainer, *batches: trainer.state.step == stage.last + 1)


PLACES = (
    in_the_last_save,
    after_the_last_answer,
    between,
    while_it_is_built,
    while_it_takes_over,
    in_the_first_update,
)
