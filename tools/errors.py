"""A user's mistakes: one exception, printed in one place as one line."""

import os
import sys
from collections.abc import Callable


class UserError(Exception):
    """A mistake that the user can fix. Its text says what is wrong and how to fix it.

    Its argument is a text, or a `Problem` of tools.series: a line of a file, and the text.
    """


def exit_status(command: Callable[[], int | None], prefix: str = "") -> int:
    """Run a tool's command. Returns its status, or prints the user's mistake and returns 2."""
    try:
        status = command() or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UserError, OSError) as error:  # OSError: such as a full disk or an unreadable file
        print(f"{prefix}{error}", file=sys.stderr)
        return 2
