"""The paper's experiments as commands; see ``python -m benchmarks --help``."""


class UsageError(ValueError):
    """The user asked for something that cannot be done; the message is one sentence for them."""

    exit_code = 2


class DataUnavailable(RuntimeError):
    """No source delivered a data set; the message says what to put where."""

    exit_code = 1
