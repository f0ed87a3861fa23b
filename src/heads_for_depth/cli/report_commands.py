"""`heads-for-depth build` and `heads-for-depth serve`."""

import functools
import http.server
import time
from typing import Annotated

import typer

from heads_for_depth.errors import BadInput
from heads_for_depth.paths import ROOT, SITE
from heads_for_depth.report import ReportFailed
from heads_for_depth.report.parameters import DEFAULT_RESULTS, ReportParameters

HOST = "127.0.0.1"


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the application."""
    app.command()(build)
    app.command()(serve)


def build(
    profile: Annotated[str, typer.Option(help="Sizes and budgets: smoke, cpu, gpu or full.")] = "cpu",
    device: Annotated[str, typer.Option(help="Where to train and measure: cpu or cuda.")] = "cpu",
    seeds: Annotated[int | None, typer.Option(help="Seeds per cell; left out, the profile's own number.")] = None,
    results: Annotated[str, typer.Option(help="Folder of the run records.")] = DEFAULT_RESULTS,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Keep executed notebooks whose source and parameters have not changed.")
    ] = False,
) -> None:
    """Execute the notebooks and build the site into _build/html: always from scratch, with warnings as errors and
    every link checked. Runs that are planned and not yet recorded are trained first; recorded runs are only read."""
    from heads_for_depth.report.making import make_report  # papermill takes a second to import

    parameters = ReportParameters(profile=profile, device=device, seeds=seeds, results=results)
    started = time.monotonic()

    def announce(text: str) -> None:
        typer.echo(f"[{time.monotonic() - started:6.0f} s] {text}", err=True)

    try:
        made = make_report(parameters, announce, reuse=reuse)
    except ReportFailed as failure:
        typer.echo(f"Report failed: {failure}", err=True)
        raise typer.Exit(1) from failure
    typer.echo(f"Site:    {(made.site / 'index.html').relative_to(ROOT)}")
    typer.echo("Serve:   make serve, or: heads-for-depth serve")
    typer.echo(f"Took:    execute {made.execute_seconds:.0f} s, build {made.build_seconds:.0f} s")


def serve(
    port: Annotated[int, typer.Option(help="Port on this machine.", min=1, max=65535)] = 8000,
) -> None:
    """Serve the built site on this machine until interrupted."""
    if not (SITE / "index.html").is_file():
        raise BadInput("site", str(SITE.relative_to(ROOT)), "it is not built yet: run `make report` first")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    try:
        server = http.server.ThreadingHTTPServer((HOST, port), handler)
    except OSError as error:
        raise BadInput("port", port, "another program uses it, or it needs rights: choose another") from error
    typer.echo(f"Serving the site at http://{HOST}:{port} (stop with Ctrl-C)")
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("Stopped.")
