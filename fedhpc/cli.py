"""The command line: picks a command, and turns what goes wrong into one message and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import fedhpc
from fedhpc import registry
from fedhpc.errors import FedhpcError, nearest

_EPILOG = """exit codes:
  0   done
  1   failed
  2   bad usage or configuration
  75  stopped early at a clean point: run the same command again with --resume
"""
_NEARLY = 0.85


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="fedhpc",
        description="Federated learning and domain-generalization studies on MPI clusters.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fedhpc {fedhpc.__version__}")
    commands = registry.names("fedhpc.commands")
    parser.add_argument(
        "command", metavar="COMMAND", help=f"one of {', '.join(commands)}; `fedhpc COMMAND --help` has an example"
    )
    known = parser.parse_args(words[:1])
    if known.command not in commands:
        parser.error(
            f"no command '{known.command}'{nearest(known.command, commands)}; there are: {', '.join(commands)}"
        )
    module = registry.load("fedhpc.commands", known.command)
    sub = argparse.ArgumentParser(
        prog=f"fedhpc {known.command}",
        description=module.HELP,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("--debug", action="store_true", help="show the traceback of an error")
    module.add_arguments(sub)
    args, overrides = sub.parse_known_args(words[1:])
    for word in overrides:
        if flag := _meant_flag(sub, word):
            sub.error(f"unknown option {word} (did you mean '{flag}'?)")
    if overrides and not getattr(module, "TAKES_OVERRIDES", False):
        sub.error(f"unrecognized arguments: {' '.join(overrides)}")
    sys.exit(_flushed(_run(module.run, args, overrides)))


def _meant_flag(parser: argparse.ArgumentParser, word: str) -> str | None:
    """The command's own option that a word is nearly; keys of a configuration are rarely that near to one."""
    import difflib

    flags = [flag for action in parser._actions for flag in action.option_strings]
    name = word.partition("=")[0]
    close = difflib.get_close_matches(name, flags, n=1, cutoff=_NEARLY) if name.startswith("--") else []
    return close[0] if close else None


def _run(command, args: argparse.Namespace, overrides: list[str]) -> int:  # type: ignore[no-untyped-def]
    """Run a command of one process; commands of many ranks handle their errors in `commands._session`."""
    try:
        return int(command(args, overrides))
    except FedhpcError as error:
        if args.debug:
            raise
        print(f"fedhpc: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of a pipe left: `fedhpc list | head`
        _drop_output()
        return 0
    except KeyboardInterrupt:
        print("fedhpc: interrupted", file=sys.stderr)
        return 130


def _flushed(code: int) -> int:
    """The exit code, when all is written: a pipe without a reader would make another one of it as Python ends."""
    try:
        if sys.stdout is not None:  # as with `>&-`
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    return code


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
