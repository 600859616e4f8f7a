"""Inputs as small pictures, and many pictures as one image file.

Shapes: a picture is H×W (grey) or H×W×3 (red, green, blue), of bytes.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps

Picture = npt.NDArray[np.uint8]

LONGEST_SIDE = 64
"""Of a picture in pixels: larger images are made smaller."""

MOST_BYTES = 2_400_000
"""Of an image file; as text in a page it is a third longer."""

JPEG_QUALITIES = (90, 75, 60, 45, 30)


def picture(value: Any) -> Picture | None:
    """An input as a picture, or None if it is no image.

    Images are Pillow's, and arrays or tensors of H×W, C×H×W or H×W×C numbers with 1, 3 or 4
    channels, of which the fourth is left out. Bytes and numbers from 0 to 1 are shown as they are;
    other numbers are scaled so that the smallest is black and the largest is white.
    """
    if isinstance(value, Image.Image):
        return _fitted(value if value.mode == "L" else value.convert("RGB"))
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if not isinstance(value, np.ndarray) or value.size == 0 or value.dtype.kind not in "biuf":
        return None
    pixels = _channels_last(value)
    return None if pixels is None else _fitted(Image.fromarray(_as_bytes(pixels)))


def grid(pictures: Sequence[Picture | None], columns: int) -> Image.Image:
    """Pictures side by side in rows of equal length; None leaves its place black.

    Each is fitted into a place of the largest height and width there are.
    """
    height, width = place_size(pictures)
    mode = "RGB" if any(one is not None and one.ndim == 3 for one in pictures) else "L"
    rows = math.ceil(len(pictures) / columns)
    sheet = Image.new(mode, (width * columns, height * rows))
    for place, one in enumerate(pictures):
        if one is not None:
            tile = Image.fromarray(one)
            if tile.size != (width, height):
                tile = ImageOps.pad(tile, (width, height), Image.Resampling.NEAREST)
            sheet.paste(tile, (place % columns * width, place // columns * height))
    return sheet


def place_size(pictures: Sequence[Picture | None]) -> tuple[int, int]:
    """Height and width of a place in a grid, at least one picture given."""
    known = [one for one in pictures if one is not None]
    return max(one.shape[0] for one in known), max(one.shape[1] for one in known)


def data_uri(image: Image.Image) -> str:
    """An image file inside an address: PNG, or JPEG if that would be larger than `MOST_BYTES`."""
    content, kind = _encoded(image, "PNG", optimize=True), "png"
    for quality in JPEG_QUALITIES:
        if len(content) <= MOST_BYTES:
            break
        content, kind = _encoded(image, "JPEG", quality=quality, subsampling=0), "jpeg"
    if len(content) > MOST_BYTES:
        return data_uri(image.resize((image.width // 2, image.height // 2)))
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, form, **options)
    return content.getvalue()


def _fitted(image: Image.Image) -> Picture:
    if max(image.size) > LONGEST_SIDE:
        image = image.copy()
        image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return np.array(image, dtype=np.uint8)


def _channels_last(values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """H×W or H×W×3; None for other shapes."""
    if values.ndim == 2 and min(values.shape) > 1:
        return values
    if values.ndim != 3:
        return None
    if values.shape[0] in (1, 3, 4):
        values = values.transpose(1, 2, 0)
    if values.shape[2] not in (1, 3, 4):
        return None
    return values[:, :, 0] if values.shape[2] == 1 else values[:, :, :3]


def _as_bytes(values: npt.NDArray[Any]) -> Picture:
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values)
    wide = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = float(wide.min()), float(wide.max())
    if values.dtype.kind in "iu" or low < 0 or high > 1:
        wide = (wide - low) / max(high - low, 1e-12)
    return np.ascontiguousarray(np.round(255 * wide).astype(np.uint8))
