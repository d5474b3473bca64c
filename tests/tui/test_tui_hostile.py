"""Names come from the program being watched. None of them is markup, and none reaches the terminal as control."""

import re

import pytest
import sample_views as views

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# What Textual itself sends: cursor, colors and modes. Whatever ESC is left over after these came from a name.
OWN = re.compile(r"\x1b(\[[0-9;?<>=]*[A-Za-z]|[78=>]|\(B|\]22;\w+\x07)")


@pytest.mark.parametrize("name", views.HOSTILE_NAMES, ids=range(len(views.HOSTILE_NAMES)))
async def test_a_hostile_name_is_only_text(app_on, screen_text, sent, name) -> None:
    app = app_on(views.hostile(name), title=name)
    async with app.run_test(size=(160, 45)) as pilot:
        for keys in ((), ("w",), ("escape", "M"), ("escape", "m", "5", "f")):
            await pilot.press(*keys)
            for size in ((60, 15), (160, 45)):
                await pilot.resize_terminal(*size)
                app_on.feed.push(views.hostile(name))
                await pilot.pause()
                await pilot.pause()
                assert not CONTROL.search(screen_text(app).replace("\n", ""))
                width = size[0]
                assert all(strip.cell_length == width for strip in app.screen._compositor.render_strips())
        assert app.is_running
    assert sent
    assert not CONTROL.search(OWN.sub("", "".join(sent)).replace("\r", "").replace("\n", ""))


@pytest.mark.parametrize("name", ["loss[/foo]", "[@click=app.quit]x"])
async def test_markup_is_shown_as_it_is_written(app_on, screen_text, name) -> None:
    app = app_on(views.hostile(name))
    async with app.run_test(size=(160, 45)) as pilot:
        await pilot.pause()
        await pilot.pause()
        assert screen_text(app).count(name) >= 6
        await pilot.press("M")
        await pilot.pause()
        assert name in screen_text(app)
        links = [
            segment.style for strip in app.screen._compositor.render_strips() for segment in strip if segment.style
        ]
        assert not any(style.meta.get("@click") for style in links)
