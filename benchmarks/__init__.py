"""The paper's experiments as commands; see ``python -m benchmarks --help``."""

import warnings

# Avalanche imports a solver library that no method here uses, and which complains when it is bare.
warnings.filterwarnings("ignore", message="no QP solver found")
# Metrics are returned here, not logged.
warnings.filterwarnings("ignore", message="No loggers specified")


class UsageError(ValueError):
    """The user asked for something that cannot be done; the message is one sentence for them."""

    exit_code = 2


class DataUnavailable(RuntimeError):
    """No source delivered a data set; the message says what to put where."""

    exit_code = 1
