"""The compared memories by name: how each is called, drawn, made and grouped; no torch in here.

The colours are those of Okabe and Ito, which colour-blind readers can tell apart; line style and
marker repeat the distinction for print in grey.
"""

from __future__ import annotations

from dataclasses import dataclass

GMC_OPTIONS = ("draws", "mode", "weighted")


@dataclass(frozen=True)
class Method:
    """A memory. The order of ``METHODS`` is that of legends and tables.

    :param label: in legends and tables.
    :param look: colour, line style and marker.
    :param family: methods of one family share one embedding of the stream: ``last-layer`` or
        ``projection``; ``local`` follows the model being trained; any other needs no sharing.
    :param options: the columns of a row that the method looks at.
    :param buffer: its class in ``avalanche_gmc.buffers.baselines``, if it is one of those.
    """

    label: str
    look: tuple[str, str, str]
    family: str
    options: tuple[str, ...] = ()
    buffer: str = ""


METHODS = {
    "gmc": Method("GMC (default)", ("#D55E00", "-", "o"), "default", ("weighted",)),
    "gmc-last-layer": Method("GMC, last layer", ("#E69F00", "--", "D"), "last-layer", GMC_OPTIONS),
    "gmc-projection": Method(
        "GMC, projection", ("#0072B2", "--", "s"), "projection", (*GMC_OPTIONS, "dim", "projection")
    ),
    "gmc-local": Method("GMC, local", ("#CC79A7", "-.", "D"), "local", GMC_OPTIONS[1:]),
    "gmc-balanced": Method("GMC, balanced", ("#56B4E9", "--", "h"), "default", ("weighted",)),
    "reservoir": Method("reservoir", ("#000000", "-", "^"), "random"),
    "class-balanced": Method(
        "class-balanced", ("#009E73", "-.", "v"), "random", buffer="GreedyClassBalancedBuffer"
    ),
    "cbrs": Method("CBRS", ("#332288", "--", "<"), "random", buffer="CBRSBuffer"),
    "facility-location": Method(
        "facility location",
        ("#8C510A", "--", "P"),
        "facility-location",
        buffer="FacilityLocationBuffer",
    ),
    "sliding-window": Method(
        "sliding window", ("#7F7F7F", ":", "x"), "random", buffer="SlidingWindowBuffer"
    ),
}
