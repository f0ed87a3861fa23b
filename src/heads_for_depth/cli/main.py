"""Collects the commands, and turns bad input into one sentence and exit code 2."""

from __future__ import annotations

import importlib
import sys

import click
import typer

from heads_for_depth.errors import BadInput

COMMANDS = ("sweep_commands",)

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
        return int(app(args=arguments, standalone_mode=False) or 0)
    except BadInput as error:
        return _complain(str(error), 2)
    except click.ClickException as error:
        return _complain(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        return _complain("interrupted; every finished run is recorded, the same command continues", 130)


def _complain(sentence: str, code: int) -> int:
    print(f"heads-for-depth: {sentence}", file=sys.stderr)
    return code
