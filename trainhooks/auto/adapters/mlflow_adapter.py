"""MLflow: the metrics that a program sends. Its own threads send ours, so that no call waits for the server."""

import time
from types import ModuleType
from typing import Any, Callable, Dict, Optional, Tuple

from trainhooks.auto import trackers
from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import wrap
from trainhooks.program_errors import pass_on

Sent = Tuple[Dict[str, Any], Optional[int]]  # metrics, and their step


@when_imported("mlflow.tracking.client")
def wrap_client(module: ModuleType) -> None:
    send = module.MlflowClient.log_batch  # as it was

    def send_figures(client: Any, run_id: str, figures: Dict[str, float], step: Optional[int]) -> None:
        now = int(time.time() * 1000)
        metrics = [module.Metric(name, value, now, step or 0) for name, value in figures.items()]
        send(client, run_id, metrics, synchronous=False)

    def wrapped(read: Callable[..., Sent]) -> Callable[..., Any]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def wrapper(self: Any, run_id: Any, *args: Any, **kwargs: Any) -> Any:
                result = trackers.called(original, self, run_id, *args, **kwargs)
                try:
                    values, step = read(*args, **kwargs)
                    trackers.record(values)
                    figures = trackers.due("mlflow")
                    if figures:
                        send_figures(self, run_id, figures, step)
                except Exception as error:  # of ours, or a client of another version
                    pass_on(error)
                return result

            return wrapper

        return make

    wrap(module.MlflowClient, "log_metric", wrapped(_of_metric))
    wrap(module.MlflowClient, "log_batch", wrapped(_of_batch))


def _of_metric(key: str, value: Any, _timestamp: Any = None, step: Any = None, **_: Any) -> Sent:
    return {key: value}, step


def _of_batch(metrics: Any = (), *_: Any, **__: Any) -> Sent:
    return {metric.key: metric.value for metric in metrics}, max((metric.step for metric in metrics), default=None)
