"""The command line: `heads-for-depth plan | run | status | recount | kappa | build | serve`."""

from heads_for_depth.cli.main import app, main

__all__ = ["app", "main"]
