"""From a memory and its history to one HTML file that needs nothing else.

Whatever comes from the data enters the page as JSON, and its script only ever writes it as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from avalanche_gmc.reporting.history import Exemplar, MemoryHistory, Snapshot
from avalanche_gmc.reporting.pictures import Picture, data_uri, grid, place_size
from avalanche_gmc.reporting.policies import the_policy

IMAGE_TYPES = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".svg": "svg+xml"}


def report(
    memory: Any,
    path: str | Path,
    *,
    history: MemoryHistory | None = None,
    class_names: Sequence[str] | Mapping[int, str] | None = None,
    title: str | None = None,
    figures: Mapping[str, str | Path] | None = None,
) -> Path:
    """Write a page that shows a memory: open it in any browser, without server or network.

    :param memory: a storage policy, ours or Avalanche's, or a plugin or strategy that has one.
    :param path: of the HTML file; folders are made, and an older file is replaced.
    :param history: what was recorded during training. None shows the memory as it is now.
    :param class_names: by class label; a class without a name is shown by its label.
    :param title: of the page; None is the kind of the memory and its size.
    :param figures: image files to include (PNG, JPEG or SVG), by their captions.
    :return: the path of the file.
    """
    policy = the_policy(memory)
    history = (history or MemoryHistory()).with_now(policy)
    title = title or f"{type(policy).__name__}, {len(policy.buffer)} exemplars"
    return _replace_file(Path(path), page(history, title, class_names, figures or {}))


def page(
    history: MemoryHistory,
    title: str,
    class_names: Sequence[str] | Mapping[int, str] | None,
    figures: Mapping[str, str | Path],
) -> str:
    """The HTML text."""
    data, sprite = page_data(history, class_names)
    data["figures"] = [{"caption": name, "uri": file_uri(Path(p))} for name, p in figures.items()]
    script = _part("page.js")
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_part("page.html")).substitute(
        title=html.escape(title),
        checksum=checksum,
        style=_part("page.css"),
        sprite=f'.pic {{ background-image: url("{sprite}"); }}' if sprite else "",
        data=_inside_script(data),
        script=script,
    )


def page_data(
    history: MemoryHistory, class_names: Sequence[str] | Mapping[int, str] | None = None
) -> tuple[dict[str, Any], str]:
    """What the script of the page reads, and the address of the image with all pictures.

    Exemplars are numbered in the order in which they entered.
    """
    places = {key: number for number, key in enumerate(history.exemplars)}
    exemplars = list(history.exemplars.values())
    pictures = [one.picture for one in exemplars if one.picture is not None]
    columns = max(1, math.ceil(math.sqrt(len(pictures))))
    labels = sorted({one.label for one in exemplars if one.label is not None})
    data = {
        "classes": [{"label": label, "name": _name(label, class_names)} for label in labels],
        "exemplars": _exemplars(exemplars),
        "snapshots": [_snapshot(one, places) for one in history.snapshots],
        "pictures": _layout(pictures, columns),
    }
    return data, data_uri(grid(pictures, columns)) if pictures else ""


def file_uri(path: Path) -> str:
    """An image file inside an address."""
    kind = IMAGE_TYPES.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path} is not an image of the types {', '.join(IMAGE_TYPES)}")
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _replace_file(path: Path, text: str) -> Path:
    """An older file stays until the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _exemplars(exemplars: Sequence[Exemplar]) -> list[dict[str, Any]]:
    described, tiles = [], 0
    for one in exemplars:
        entry: dict[str, Any] = {"label": one.label, "values": one.values}
        if one.label is None:
            entry["target"] = one.target
        if one.picture is not None:
            entry["tile"] = tiles
            tiles += 1
        described.append(entry)
    return described


def _layout(pictures: Sequence[Picture], columns: int) -> dict[str, int] | None:
    if not pictures:
        return None
    height, width = place_size(pictures)
    rows = math.ceil(len(pictures) / columns)
    return {"columns": columns, "rows": rows, "width": width, "height": height}


def _snapshot(snapshot: Snapshot, places: Mapping[str, int]) -> dict[str, Any]:
    weights = snapshot.weights
    return {
        "name": snapshot.name,
        "members": [places[key] for key in snapshot.ids],
        "weights": None if weights is None else [_rounded(weight) for weight in weights],
        "residual": _rounded(snapshot.residual),
        "effective": _rounded(snapshot.effective_size),
        "seen": snapshot.num_seen,
    }


def _rounded(value: float | None) -> float | None:
    """Four digits are enough to look at; JSON has no infinite numbers."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def _name(label: int, names: Sequence[str] | Mapping[int, str] | None) -> str:
    if isinstance(names, Mapping):
        return str(names.get(label, f"class {label}"))
    known = names is not None and 0 <= label < len(names)
    return str(names[label]) if names is not None and known else f"class {label}"


def _inside_script(data: Any) -> str:
    """JSON in which nothing can end the script element."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _part(name: str) -> str:
    return files("avalanche_gmc.reporting").joinpath(name).read_text(encoding="utf-8")
