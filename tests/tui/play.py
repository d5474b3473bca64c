"""Runs the dashboard on made-up views, to look at: python tests/tui/play.py [VIEW] [--gpus N] [--fast]."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator

import sample_views as views

from monitor.model.view import View
from monitor.tui.app import TrainmonApp


class PlayFeed:
    """Hands out the views of an iterator, a few a second, from a thread."""

    def __init__(self, views: Iterator[View], pause: float) -> None:
        self._views, self._pause = views, pause
        self._over = threading.Event()

    def start(self, on_view: Callable[[View], None]) -> None:
        threading.Thread(target=self._run, args=(on_view,), daemon=True).start()

    def _run(self, on_view: Callable[[View], None]) -> None:
        for view in self._views:
            if self._over.wait(self._pause):
                return
            on_view(view)

    def stop(self) -> None:
        self._over.set()

    def show_rank(self, rank: int | None) -> None:
        """They are of one."""


def live(gpus: int) -> Iterator[View]:
    yield views.waiting()
    for _ in range(8):
        yield views.starting()
    for steps in range(1, views.TOTAL + 1):
        for tick in range(4):
            view = views.running(steps, gpus, 2.0 + tick)
            yield view
    yield views.ended("finished", 0)


FIXED = {
    "waiting": views.waiting, "starting": views.starting, "silent": views.silent, "replay": views.replayed,
    "failed": lambda: views.ended("failed", 3, error="ValueError: no such file"), "lost": lambda: views.ended("lost"),
    "killed": lambda: views.ended("killed", signal=9), "finished": lambda: views.ended("finished", 0),
}  # fmt: skip


def stop_training(say: Callable[[str], None]) -> None:
    say("SIGINT sent; waiting 30 s")
    time.sleep(2)
    say("the training ended with exit code 130")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("view", nargs="?", default="live", choices=["live", "still", *FIXED])
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--fast", action="store_true")
    chosen = parser.parse_args()
    if chosen.view == "live":
        source = live(chosen.gpus)
    elif chosen.view == "still":
        source = iter([views.running(gpus=chosen.gpus)])
    else:
        source = iter([FIXED[chosen.view]()])
    feed = PlayFeed(source, 0.02 if chosen.fast else 0.25)
    print(TrainmonApp(feed, title="rl-code-rft", stop_training=stop_training).run())


if __name__ == "__main__":
    main()
