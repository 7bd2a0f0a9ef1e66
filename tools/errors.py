"""What a user of the tools gets wrong: one exception, shown in one place as one line."""

import os
import sys
from collections.abc import Callable


class UserError(Exception):
    """Something the user can fix. `str()` of it says what is wrong and what to do about it.

    Its argument is a text, or a `Problem` of tools.series: a line of a file, and the text.
    """


def exit_status(command: Callable[[], int | None], prefix: str = "") -> int:
    """Run a command of a tool. Returns its status, or 2 after one line about what the user did."""
    try:
        status = command() or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UserError, OSError) as error:  # OSError: a full disk, a file that cannot be read
        print(f"{prefix}{error}", file=sys.stderr)
        return 2
