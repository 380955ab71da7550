"""How every figure is drawn and written: without pyplot, in one style, to the same bytes for the same data."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A00")
"""Okabe and Ito's, safe for colour-blind readers; the last, in place of their yellow, is seen on white."""
GRID: Any = {"axes.grid": True, "axes.axisbelow": True, "grid.color": "#DDDDDD", "grid.linewidth": 0.6}
"""Settings of a style with a grid behind the data."""
_STYLE: Any = {
    "svg.hashsalt": "fedhpc",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,
}
_METADATA: Any = {"png": {"Software": "fedhpc"}, "svg": {"Date": None, "Creator": "fedhpc"}}


@contextmanager
def style(changes: Any = None) -> Iterator[None]:
    """Draw in the house's style, whatever the user's own settings are; `changes` are matplotlib's, by name."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({**_STYLE, **(changes or {})})
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def written(name: str, figure: Figure) -> dict[str, bytes]:
    """A figure as the files `name.png` and `name.svg`."""
    files = {}
    for form, metadata in _METADATA.items():
        out = io.BytesIO()
        figure.savefig(out, format=form, dpi=160, metadata=metadata)
        files[f"{name}.{form}"] = out.getvalue()
    return files
