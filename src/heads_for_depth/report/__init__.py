"""From notebooks and chapters to a site: execute, build, check."""


class ReportFailed(RuntimeError):
    """The report could not be made; the message names the notebook and cell, the warning or the link at fault.

    The command line prints the message to stderr and exits with code 1.
    """
