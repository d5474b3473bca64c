"""Ctrl-C: detach, stop the training, or go back. And what is said while it is being stopped."""

from __future__ import annotations

import threading
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from monitor.tui.feed import StopTraining
from monitor.tui.rows import fit
from monitor.tui.screens.dialog import Dialog

LOOK_SECONDS = 0.1  # between looks for what is said
NO_STOP = "It cannot be stopped from here: `trainmon stop RUN` does."


class QuitScreen(Dialog[str]):
    """Answers `detach`, `stop`, or None for going back."""

    heading = "The training is running"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "answer('detach')", show=False),
        Binding("s", "answer('stop')", show=False),
        Binding("c,q", "close", show=False),
    ]

    def __init__(self, can_stop: bool) -> None:
        super().__init__()
        self._can_stop = can_stop

    def parts(self) -> list[Widget]:
        choices = [Option(Content("d  Detach: close the dashboard, the training goes on"), id="detach")]
        choices += [Option(Content("s  Stop the training"), id="stop")] if self._can_stop else []
        choices.append(Option(Content("c  Cancel: back to the dashboard"), id="cancel"))
        hint = "Ctrl-C again detaches." if self._can_stop else f"{NO_STOP} Ctrl-C again detaches."
        return [OptionList(*choices), Static(Content(hint), classes="hint")]

    def action_answer(self, answer: str) -> None:
        if answer == "detach" or self._can_stop:
            self.dismiss(answer)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(None if event.option_id == "cancel" else event.option_id)


class StopScreen(Dialog[None]):
    """Runs the stopping in a thread and shows each line it says. Closing this dialog does not call it off."""

    heading = "Stopping the training"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "leave", show=False, id="detach")]

    def __init__(self, stop_training: StopTraining, leave: str = "detach") -> None:
        """
        Args:
            leave: the action of the app that leaves it.
        """
        super().__init__()
        self._leave = leave
        self._stop_training = stop_training
        self._lines: list[str] = []
        self._shown = 0
        self._over = False
        self._said = Static(Content("…"))

    def parts(self) -> list[Widget]:
        return [self._said, Static(Content("Esc goes back to the dashboard."), classes="hint")]

    def on_mount(self) -> None:
        # No worker of Textual's: an app that closes waits for those, and would wait for the training's end.
        threading.Thread(target=self._run, name="stop-shown", daemon=True).start()
        self.set_interval(LOOK_SECONDS, self._show)

    def _run(self) -> None:
        try:
            self._stop_training(self._lines.append)
            self._lines.append("Done.")
        except Exception as error:  # shown to the person who asked; the dashboard itself goes on
            self._lines.append(f"It could not be stopped: {error}")
        self._over = True

    def _show(self) -> None:
        if len(self._lines) > self._shown:
            self._shown = len(self._lines)
            self._said.update(Content("\n".join(fit(line, 400) for line in self._lines[-12:])))

    async def action_leave(self) -> None:
        """As below this dialog, once there is nothing more to be read in it."""
        if self._over:
            await self.app.run_action(self._leave)
