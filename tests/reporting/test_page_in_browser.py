"""The page in a real browser: filter, slider, keyboard, screen sizes, and no errors."""

from __future__ import annotations

import pytest
from headless_browser import MISSING, browser
from reported_memories import dataset, first_come, window_history

from avalanche_gmc import MemoryHistory, report

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

EVIL = "</script><img src=x onerror=document.title='broken'><b>bold</b>"
CLASSES = ["zero", "one", "two", "three", EVIL]


@pytest.fixture(scope="module")
def window():
    with browser() as opened:
        yield opened


@pytest.fixture
def page(window, tmp_path):
    """The history of three experiences; nothing may be complained about in the end."""
    memory, history = window_history()
    path = report(memory, tmp_path / "page.html", history=history, class_names=CLASSES)
    window.look(1200, 900)
    window.open(path)
    yield window
    assert window.console() == []


def status(page):
    return page.run("return document.getElementById('status').textContent")


def tiles(page):
    found = "[...document.querySelectorAll('#shown .tile')]"
    return page.run(f"return {found}.map((tile) => tile.getAttribute('aria-label'))")


def choose(page, name, value):
    script = (
        "const field = document.getElementById(arguments[0]); field.value = arguments[1];"
        "for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind))"
    )
    page.run(script, name, value)


def focused(page):
    found = "document.activeElement"
    return page.run(f"return {found}.id || {found}.getAttribute('aria-label')")


def test_it_opens_with_the_memory_as_it_is_now(page):
    assert status(page) == "After experience 3: 6 exemplars, 4 entered and 4 left. 6 shown."
    headings = page.run(
        "return [...document.querySelectorAll('#shown h3')].map((h) => h.innerText)"
    )
    assert headings[0] == "three 2 exemplars, weights sum to 3"
    assert len(tiles(page)) == 6
    counts = "return [...document.querySelectorAll('#counts tbody tr')].map((r) => r.innerText)"
    assert page.run(counts)[2] == "two\t0\t2\t0"
    charts = "return [...document.querySelectorAll('svg')].map((s) => s.getAttribute('aria-label'))"
    assert "exemplars from 4 to 6; effective size from 3.333 to 4.846" in page.run(charts)[0]


def test_names_are_text_and_not_markup(page):
    assert page.run("return document.title") == "WeightedWindow, 6 exemplars"
    assert page.run("return document.querySelectorAll('#shown b, #shown img, td b').length") == 0
    assert any(label.startswith(EVIL) for label in tiles(page))


def test_filters_and_sorting(page):
    choose(page, "class", "3")
    assert tiles(page) == ["three, weight 2", "three, weight 1"]
    choose(page, "sort", "light")
    assert tiles(page) == ["three, weight 1", "three, weight 2"]
    choose(page, "least", "2")
    assert tiles(page) == ["three, weight 2"]
    choose(page, "least", "99")
    assert status(page).endswith("None shown.")
    choose(page, "least", "")
    choose(page, "class", "all")
    choose(page, "show", "entered")
    assert len(tiles(page)) == 4
    assert all("entered after experience 3" in label for label in tiles(page))
    choose(page, "show", "left")
    assert [label.split(",")[0] for label in tiles(page)] == ["one", "one", "two", "two"]


def test_slider_by_keyboard(page):
    page.run("document.getElementById('step').focus()")
    page.press("ArrowLeft")
    assert status(page) == "After experience 2: 6 exemplars, 4 entered and 2 left. 6 shown."
    text = "return document.getElementById('step').getAttribute('aria-valuetext')"
    assert page.run(text) == "experience 2, 2 of 3"
    page.press("Home")
    assert status(page) == "After experience 1: 4 exemplars, 4 entered and 0 left. 4 shown."
    assert page.run("return document.getElementById('earlier').disabled") is True
    page.press("End")
    assert status(page).startswith("After experience 3")


def test_exemplars_by_keyboard(page):
    page.run("document.getElementById('least').focus()")
    page.press("Tab")
    assert focused(page) == "three, weight 2"
    page.press("ArrowRight")
    assert focused(page) == "three, weight 1"
    page.press("ArrowDown")
    assert "weight 5" in focused(page)
    page.press("ArrowUp", "Home", "Enter")
    shown = "return document.getElementById('detail').open"
    assert page.run(shown) is True
    facts = page.run("return document.getElementById('detail-facts').innerText")
    assert "experience 2" in facts and "is still in the memory" in facts
    page.press("Escape")
    assert page.run(shown) is False
    assert focused(page) == "three, weight 2"
    page.press("Tab")
    assert page.run("return document.activeElement.classList.contains('tile')") is False


def test_every_control_has_a_name(page):
    script = (
        "return [...document.querySelectorAll('input, select, button')].filter((field) =>"
        "!field.labels?.length && !field.getAttribute('aria-label') && !field.innerText.trim()"
        "&& !field.closest('[hidden]')).map((field) => field.outerHTML)"
    )
    assert page.run(script) == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_it_fits_the_screen_and_can_be_read(page, width, dark):
    page.look(width, 800, dark=dark)
    assert page.run("return document.documentElement.scrollWidth") <= width
    colours = page.run(
        "const style = getComputedStyle(document.body);"
        "return [style.color, style.backgroundColor, getComputedStyle(document.getElementById("
        "'legend')).color].map((text) => text.match(/\\d+/g).map(Number))"
    )
    ink, paper, soft = map(luminance, colours)
    assert (paper < ink) is dark
    for text in (ink, soft):
        light, deep = max(text, paper), min(text, paper)
        assert (light + 0.05) / (deep + 0.05) >= 4.5  # WCAG AA


def luminance(colour):
    linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_counts_of_the_current_step_are_in_view(page):
    page.look(320, 800)
    page.run("document.getElementById('counts').style.width = '900px'")
    for step in ("0", "2"):
        choose(page, "step", step)
        cell, region = page.run(
            "const cell = document.querySelector('#counts .current');"
            "return [cell, cell.closest('.scroll')].map((element) => {"
            "const box = element.getBoundingClientRect(); return [box.left, box.right] })"
        )
        assert cell[0] >= region[0] - 1 and cell[1] <= region[1] + 1


def test_a_picture_is_drawn(page, tmp_path):
    import numpy as np
    from PIL import Image

    place = page.run(
        "const tile = document.querySelector('#shown .pic'); tile.scrollIntoView();"
        "const box = tile.getBoundingClientRect(); return [box.x, box.y, box.width, box.height]"
    )
    page.screenshot(tmp_path / "page.png")
    x, y, width, height = (round(value) for value in place)
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("L"))
    assert pixels[y : y + height, x : x + width].std() > 30


def test_a_memory_of_rows_without_history(window, tmp_path):
    import torch

    memory = first_come(dataset(torch.arange(12.0).reshape(4, 3), [0, 1, 0, 1]), 4)
    window.open(report(memory, tmp_path / "rows.html", history=MemoryHistory()))
    assert status(window) == "4 exemplars. 4 shown."
    rows = "return [...document.querySelectorAll('#shown tbody tr')].map((r) => r.innerText)"
    assert window.run(rows)[0] == "class 0\tnow\t0\t1\t2"
    choose(window, "class", "1")
    assert len(window.run(rows)) == 2
    assert window.run("return document.getElementById('slider').hidden") is True
    assert window.console() == []
