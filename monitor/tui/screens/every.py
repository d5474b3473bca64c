"""Every screen beside the overview, by the name that `actions.SCREENS` has for it."""

from __future__ import annotations

from collections.abc import Callable

from monitor.tui.screens.breakdown import BreakdownScreen
from monitor.tui.screens.charts import ChartsScreen
from monitor.tui.screens.findings import FindingsScreen
from monitor.tui.screens.gpus import GpusScreen
from monitor.tui.screens.log import LogScreen
from monitor.tui.screens.page import PageScreen
from monitor.tui.screens.ranks import RanksScreen
from monitor.tui.screens.setup import SetupScreen
from monitor.tui.screens.steps import StepsScreen

SCREEN_CLASSES: dict[str, Callable[[], PageScreen]] = {
    "findings": FindingsScreen,
    "steps": StepsScreen,
    "breakdown": BreakdownScreen,
    "charts": ChartsScreen,
    "gpus": GpusScreen,
    "ranks": RanksScreen,
    "log": LogScreen,
    "setup": SetupScreen,
}
