"""Collects the commands, and turns bad input into one sentence and exit code 2."""

from __future__ import annotations

import importlib
import sys

import typer

from heads_for_depth.errors import BadInput

INTERRUPTED = 130
"""Exit code after Ctrl-C, which typer swallows and returns."""
COMMANDS = (
    "sweep_commands",
    "recount_command",
    "kappa_command",
    "report_commands",
    "readme_command",
    "verify_command",
    "compare_command",
    "reproduce_command",
    "bench_command",
    "throughput_command",
    "parallelism_command",
)

app = typer.Typer(
    name="heads-for-depth",
    help="Re-run, inspect and rebuild the report on trading transformer depth for attention heads.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _module in COMMANDS:
    importlib.import_module(f"heads_for_depth.cli.{_module}").register(app)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 a check failed, 2 bad input, 130 interrupted."""
    try:
        code = int(app(args=arguments, standalone_mode=False) or 0)
    except BadInput as error:
        return _complain(str(error), 2)
    except typer.TyperException as error:
        return _complain(error.format_message() or "name one of the commands above", 2)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        _complain("interrupted; what was recorded is whole, the same command goes on from there", code)
    return code


def _complain(sentence: str, code: int) -> int:
    print(f"heads-for-depth: {sentence}", file=sys.stderr)
    return code
