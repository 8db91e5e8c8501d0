"""What the commands of `python -m` share: how options are read, and how a command ends."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from simcse_pl.utils.errors import USER_ERROR_STATUS, did_you_mean
from simcse_pl.utils.exit_status import report_error, say_no_more

_TO_DEBUG = "--debug"


class Parser(argparse.ArgumentParser):
    """argparse's, which tells a mistake in one line, with the nearest option's name."""

    def error(self, message: str) -> NoReturn:
        """End with what is wrong."""
        what, _, unknown = message.partition("unrecognized arguments: ")
        if not what and unknown.startswith("-"):
            name = unknown.split()[0].partition("=")[0]
            message = f"no option {name}{did_you_mean(name, self._option_string_actions)}"
        self.exit(USER_ERROR_STATUS, f"error: {message} (--help lists all)\n")


def run(parser: Parser, work: Callable[[argparse.Namespace], Any], given: Sequence[str] | None = None) -> None:
    """Do a command's work; whatever goes wrong is told in a line, and with `--debug` keeps its traceback.

    Args:
        parser: of its arguments.
        work: is given them.
        given: the arguments; the program's own where None.
    """
    parser.add_argument(_TO_DEBUG, action="store_true", help="show the traceback of whatever goes wrong")
    arguments = parser.parse_intermixed_args(given)
    try:
        work(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has had enough
        say_no_more()
        sys.exit(141)  # as a shell has it
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        sys.exit(report_error(error, arguments.debug, _TO_DEBUG))
