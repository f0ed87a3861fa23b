"""The command line, one module per command or group of commands:

`heads-for-depth plan | run | status | verify | compare | reproduce | bench | recount | kappa | build | serve`.
"""

from heads_for_depth.cli.main import app, main

__all__ = ["app", "main"]
