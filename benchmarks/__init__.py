"""The paper's experiments as commands; see ``python -m benchmarks --help``."""


class UsageError(ValueError):
    """The user asked for something that cannot be done; the message is one sentence for them."""
