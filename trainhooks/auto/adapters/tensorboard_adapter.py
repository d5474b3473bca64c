"""TensorBoard, by torch's writer, which imports it first: the scalars that a program writes."""

from functools import partial
from types import ModuleType
from typing import Any, Callable, Dict

from trainhooks.auto import trackers
from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import wrap
from trainhooks.program_errors import pass_on


@when_imported("torch.utils.tensorboard.writer")
def wrap_writer(module: ModuleType) -> None:
    wrap(module.SummaryWriter, "add_scalar", partial(_add_scalar, module))


def _add_scalar(module: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        figures: Dict[str, float] = {}
        try:
            given = {**dict(zip(("tag", "scalar_value", "global_step"), args)), **kwargs}
            trackers.record({given["tag"]: given["scalar_value"]})
            figures = trackers.due("tensorboard")
        except Exception as error:  # the program's call tells what is wrong with it
            pass_on(error)
        result = trackers.called(original, self, *args, **kwargs)
        try:
            if figures:
                _write(module, self, figures, given.get("global_step"))
        except Exception as error:  # a writer of another version
            pass_on(error)
        return result

    return wrapper


def _write(module: Any, writer: Any, figures: Dict[str, float], step: Any) -> None:
    """Write all figures as one event: one more entry in the queue of the writer's thread."""
    summaries = [module.scalar(name, value) for name, value in figures.items()]
    for summary in summaries[1:]:
        summaries[0].value.extend(summary.value)
    writer._get_file_writer().add_summary(summaries[0], step)
