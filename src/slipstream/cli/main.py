"""The `slipstream` program: error lines, exit codes.

Exit codes: 0 success, 1 a check failed, 2 a usage or configuration error, 130 interrupted.

The commands (program) are imported when it starts, so that Ctrl-C ends it quietly while it loads them, too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from slipstream.base.errors import SlipstreamError

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program; every error that the project raises on purpose becomes one line and an exit code.

    Args:
        argv: arguments without the program's name; None takes the process's.
    """
    try:
        from slipstream.cli.console import hold_standard_streams
        from slipstream.cli.program import build_app

        hold_standard_streams()
        build_app()(args=None if argv is None else list(argv), prog_name="slipstream")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except SlipstreamError as error:
        from slipstream.cli.console import show_error

        show_error(str(error))
        sys.exit(EXIT_ERROR)
    except BrokenPipeError:
        # The reader of a pipe has gone. What is still buffered must not raise again at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_PIPE)
