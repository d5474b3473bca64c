"""The foot of the screens: the keys that fit, the way to the help first."""

from dataclasses import replace
from itertools import pairwise

import pytest
import sample_views as views

from monitor.keymap import REPLAY_ACTIONS, SCREEN_ACTIONS
from monitor.model.report import Outcome
from monitor.tui.actions import ACTIONS, PANELS
from monitor.tui.drawing.rows import Row, row_width
from monitor.tui.panels import footer
from monitor.tui.panels.base import ViewOptions
from monitor.tui.replay_app import of_replay
from monitor.tui.screens.page import PageFooter, screen_classes


def text(rows: list[Row]) -> str:
    return "\n".join("".join(part for part, _ in row) for row in rows)


@pytest.mark.parametrize("width", [18, 40, 60, 80, 160])
@pytest.mark.parametrize("screen", SCREEN_ACTIONS)
def test_the_way_to_the_help_is_never_left_out(screen: str, width: int) -> None:
    shown = footer.fitting_actions(PageFooter(screen_classes()[screen]().body).actions, width)
    assert "help" in [action.name for _, _, action in shown]
    assert all(end <= width for _, end, _ in shown)
    assert all(one[1] + 3 == other[0] for one, other in pairwise(shown))


def test_a_replay_shows_early_how_to_hold_it(options: ViewOptions) -> None:
    foot = footer.Footer("footer")
    foot.show(views.running(), replace(options, replay=True, actions=of_replay(ACTIONS, REPLAY_ACTIONS)))
    named = [action.footer for action in foot.actions if action.footer]
    assert named[:8] == ["quit", "help", "pause", "why", "step", "faster", "on by 5%", "steps"]
    assert len(named) == len({action.shown for action in foot.actions if action.footer}), "no key twice"
    foot.show(views.running(), replace(options, actions=ACTIONS))
    assert [action.footer for action in foot.actions if action.footer][:3] == ["detach", "help", "why"]


@pytest.mark.parametrize("width", range(18, 220, 7))
def test_the_foot_says_that_there_are_more_keys(options: ViewOptions, width: int) -> None:
    foot = footer.Footer("footer")
    [row] = foot.rows(views.running(), options, width, 1)
    named = len(footer.footer_actions(foot.actions))
    assert text([row]).endswith("…") == (len(footer.fitting_actions(foot.actions, width)) < named)
    assert row_width(row) <= width


def test_at_the_end_of_a_replay_the_foot_leads_back_only(options: ViewOptions) -> None:
    foot, view = footer.Footer("footer"), views.running()
    over = replace(view, report=replace(view.report, outcome=Outcome("finished", 0)))
    foot.show(over, replace(options, replay=True, actions=of_replay(ACTIONS, REPLAY_ACTIONS)))
    [row] = foot.rows(over, foot._options, 100, 1)
    assert text([row]).startswith(" q quit   ? help   p start over   w why   , back   ( back by 5%   s steps")


def test_the_foot_names_the_panels_that_there_are(monkeypatch) -> None:
    monkeypatch.setattr(footer, "PANELS", PANELS[:8])
    assert footer.panel_keys(()) == "1–8" and footer.panel_keys({"ranks"}) == "1–7"
    assert (
        footer.panel_keys({"console", "ranks"}) == "1–5, 7"
        and footer.panel_keys({"phases", "alerts"}) == "1, 3, 4, 6–8"
    )


def test_the_keys_that_scroll_and_those_of_the_panels_are_told_in_the_foot(options: ViewOptions) -> None:
    own = footer.footer_actions(PageFooter(screen_classes()["breakdown"]().body).actions)
    assert (own[1].shown_in_footer, own[1].footer) == ("↑↓", "scroll")
    last = footer.footer_actions(ACTIONS)[-1]
    assert (last.shown_in_footer, last.footer) == (footer.panel_keys(()), "panels")
