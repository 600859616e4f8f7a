"""The compared memories by name: how each is called, drawn, made and grouped; no torch in here.

The colours are those of Okabe and Ito, then of Tol, which colour-blind readers can tell apart;
line style and marker repeat the distinction for print in grey.
"""

from __future__ import annotations

from dataclasses import dataclass

GMC_OPTIONS = ("draws", "mode", "weighted")


@dataclass(frozen=True)
class Method:
    """A memory. The order of ``METHODS`` is that of legends and tables.

    :param label: in legends and tables.
    :param look: colour, line style and marker.
    :param family: which embedding of the stream the memory selects by: ``last-layer`` or
        ``projection`` with the options of the cell; ``default``, what the memory builds by itself;
        ``local``, at the weights of the model that is being trained; another word for none. Methods
        of one family are selected in one pass over the stream.
    :param options: the columns of a row that the method looks at.
    """

    label: str
    look: tuple[str, str, str]
    family: str
    options: tuple[str, ...] = ()


METHODS = {
    "gmc": Method("GMC (default)", ("#D55E00", "-", "o"), "default", ("weighted",)),
    "gmc-last-layer": Method("GMC, last layer", ("#E69F00", "--", "D"), "last-layer", GMC_OPTIONS),
    "gmc-projection": Method(
        "GMC, projection", ("#0072B2", "--", "s"), "projection", (*GMC_OPTIONS, "dim", "projection")
    ),
    "gmc-local": Method("GMC, local", ("#CC79A7", "-.", "D"), "local", GMC_OPTIONS[1:]),
    "gmc-balanced": Method("GMC, balanced", ("#56B4E9", "--", "h"), "default", ("weighted",)),
    "reservoir": Method("reservoir", ("#000000", "-", "^"), "random"),
    "class-balanced": Method("class-balanced", ("#009E73", "-.", "v"), "random"),
    "sliding-window": Method("sliding window", ("#7F7F7F", ":", "x"), "random"),
    "cbrs": Method("CBRS", ("#332288", "--", "<"), "random"),
    "facility-location": Method("facility location", ("#8C510A", "--", "P"), "facility-location"),
    "herding": Method("herding", ("#88CCEE", "-", "p"), "default"),
    "k-center": Method("k-center", ("#44AA99", "-", ">"), "default"),
    "k-means++": Method("k-means++", ("#117733", "-", "X"), "default"),
    "grand": Method("GraNd", ("#DDCC77", "-", "d"), "default"),
    "giga": Method("GIGA", ("#CC6677", "-", "H"), "default", ("weighted",)),
    "bilevel": Method("bilevel", ("#AA4499", "-", "8"), "default"),
    "gss": Method("GSS", ("#882255", ":", "1"), "local"),
    "gss-draws": Method("GSS at draws", ("#AA7744", ":", "3"), "default"),
    "grad-match": Method("GradMatch", ("#661100", ":", "2"), "local", ("weighted",)),
    "avalanche-class-balanced": Method("Avalanche: class balance", ("#999933", ":", "v"), "random"),
    "avalanche-experience-balanced": Method(
        "Avalanche: experience balance", ("#6699CC", ":", "<"), "random"
    ),
    "avalanche-herding": Method("Avalanche: herding", ("#AA4466", ":", "p"), "local"),
}
