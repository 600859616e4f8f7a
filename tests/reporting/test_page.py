"""The page holds what the memory holds, needs nothing else, and stays small."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from avalanche.training.plugins import ReplayPlugin
from PIL import Image
from reported_memories import dataset, first_come, images, window_history
from small_streams import mlp, naive

from avalanche_gmc import MemoryHistory, SlidingWindowBuffer, report
from avalanche_gmc.reporting import pictures
from avalanche_gmc.reporting.page import page_data

EVIL = '</script><img src=x onerror=alert(1)>"&\u2028'


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.inside, self.data = [], "", ""

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = dict(attributes).get("id", "")

    def handle_data(self, text):
        if self.inside == "data":
            self.data += text
            self.inside = ""


def parsed(path):
    elements = Elements()
    elements.feed(path.read_text(encoding="utf-8"))
    return elements, json.loads(elements.data)


def test_the_page_has_the_memory_and_its_history(tmp_path):
    memory, history = window_history()
    path = report(memory, tmp_path / "new/folder/page.html", history=history)
    _, data = parsed(path)
    sizes = [len(one["members"]) for one in data["snapshots"]]
    assert sizes == [4, 6, 6]
    now = data["snapshots"][-1]
    assert [data["exemplars"][k]["label"] for k in now["members"]] == [3, 3, 4, 4, 4, 4]
    assert now["weights"] == [1, 2, 3, 4, 5, 6]
    assert (now["residual"], now["effective"]) == (0.25, pytest.approx(21**2 / 91, rel=1e-3))
    assert [one["name"] for one in data["classes"]] == [f"class {k}" for k in range(5)]
    assert list(tmp_path.glob("new/folder/*")) == [path]


def test_it_takes_a_buffer_a_plugin_or_a_strategy(tmp_path):
    memory, _ = window_history()
    plugin = ReplayPlugin(6, storage_policy=memory)
    for number, given in enumerate((memory, plugin, naive(mlp(), plugin))):
        _, data = parsed(report(given, tmp_path / f"{number}.html"))
        assert [one["name"] for one in data["snapshots"]] == ["now"]
        assert len(data["exemplars"]) == 6
    with pytest.raises(ValueError, match="got a Sequential with 0 of them"):
        report(mlp(), tmp_path / "no.html")


def test_pictures_are_the_pixels_of_the_exemplars():
    memory, history = window_history()
    data, sprite = page_data(history.with_now(memory))
    assert sprite.startswith("data:image/png;base64,")
    sheet = np.asarray(Image.open(_file(sprite)))
    layout = data["pictures"]
    k = data["snapshots"][-1]["members"][0]
    down, right = divmod(data["exemplars"][k]["tile"], layout["columns"])
    found = sheet[8 * down : 8 * down + 8, 8 * right : 8 * right + 8]
    assert (found == memory.buffer[0][0][0].numpy()).all()


def _file(uri):
    import base64
    import io

    return io.BytesIO(base64.b64decode(uri.partition(",")[2]))


def test_rows_of_tables_are_shown_as_numbers(tmp_path):
    data = dataset(torch.arange(12.0).reshape(4, 3), [0, 1, 0, 1])
    _, content = parsed(report(first_come(data, 4), tmp_path / "page.html"))
    assert content["pictures"] is None
    assert content["exemplars"][1]["values"] == ["3", "4", "5"]


def test_an_empty_memory_has_a_page(tmp_path):
    _, data = parsed(report(SlidingWindowBuffer(3), tmp_path / "page.html"))
    assert data["snapshots"][0]["members"] == []


def test_names_cannot_become_markup(tmp_path):
    memory, history = window_history()
    named = {4: EVIL}
    path = report(memory, tmp_path / "page.html", history=history, class_names=named, title=EVIL)
    elements, data = parsed(path)
    assert data["classes"][4]["name"] == EVIL
    assert data["classes"][3]["name"] == "class 3"
    assert [tag for tag, _ in elements.tags].count("script") == 2
    assert not set("<>&") & set(elements.data)
    assert not any("onerror" in attributes for _, attributes in elements.tags)


def test_nothing_is_loaded_from_elsewhere(tmp_path):
    memory, history = window_history()
    figure = tmp_path / "figure.svg"
    figure.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    path = report(memory, tmp_path / "page.html", history=history, figures={"a figure": figure})
    elements, data = parsed(path)
    links = [v for _, a in elements.tags for k, v in a.items() if k in ("src", "href")]
    assert all(link.startswith(("data:", "#")) for link in links)
    assert set(re.findall(r"https?://[\w./]+", path.read_text())) == {"http://www.w3.org/2000/svg"}
    assert data["figures"][0]["uri"].startswith("data:image/svg+xml;base64,")
    with pytest.raises(ValueError, match="not an image of the types"):
        report(memory, path, figures={"text": tmp_path / "notes.txt"})


def test_weights_that_are_no_numbers_do_not_break_it(tmp_path):
    memory, _ = window_history()
    memory.residual_norm = float("nan")
    _, data = parsed(report(memory, tmp_path / "page.html"))
    assert data["snapshots"][0]["residual"] is None


def test_a_thousand_images_of_the_hardest_kind_fit_into_5_mb(tmp_path):
    """Noise compresses worst: a thousand CIFAR images are smaller."""
    data = images([k % 10 for k in range(1000)], channels=3, side=32)
    memory, history = first_come(data, 1000), MemoryHistory()
    history.record(memory)
    path = report(memory, tmp_path / "page.html", history=history)
    assert path.stat().st_size < 5_000_000


def test_too_many_pictures_are_made_smaller(monkeypatch):
    monkeypatch.setattr(pictures, "MOST_BYTES", 2_000)
    noise = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    uri = pictures.data_uri(pictures.grid(list(noise), 4))
    assert uri.startswith("data:image/jpeg")
    assert len(uri) < 2_800
    assert Image.open(_file(uri)).width < 128


def test_pictures_of_different_sizes_share_a_grid():
    wide, grey = np.full((4, 8, 3), 200, np.uint8), np.full((8, 8), 100, np.uint8)
    sheet = np.asarray(pictures.grid([wide, None, grey], 3))
    assert sheet.shape == (8, 24, 3)
    assert (sheet[2:6, :8] == 200).all() and (sheet[:2, :8] == 0).all()
    assert (sheet[:, 8:16] == 0).all() and (sheet[:, 16:] == 100).all()


@pytest.mark.parametrize(
    "value",
    [torch.rand(5), torch.rand(2, 5, 5), torch.rand(0, 3), torch.zeros(2, 2, dtype=torch.cfloat)],
)
def test_other_arrays_are_no_pictures(value):
    assert pictures.picture(value) is None


def test_numbers_on_any_scale_are_shown():
    ramp = torch.tensor([[-3.0, 0.0], [float("nan"), 3.0]])
    assert pictures.picture(ramp).tolist() == [[0, 128], [128, 255]]
    assert pictures.picture(torch.tensor([[0.0, 0.5], [0.1, 0.2]])).max() == 128
    assert pictures.picture(torch.tensor([[False, True]] * 2)).max() == 255
    assert pictures.picture(torch.zeros(2, 2, dtype=torch.bfloat16)).max() == 0
