"""Sweeps: only what is missing, one record per run, on the processes of this machine or on a cluster."""

from heads_for_depth.sweeps.planning import Progress, missing, progress, tuned
from heads_for_depth.sweeps.running import OpenWorkers, SweepFailed, drain, run_all
from heads_for_depth.sweeps.workers import Workers, processes

__all__ = [
    "OpenWorkers",
    "Progress",
    "SweepFailed",
    "Workers",
    "drain",
    "missing",
    "processes",
    "progress",
    "run_all",
    "tuned",
]
