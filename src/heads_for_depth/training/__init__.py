"""Training planned runs: one seed after the other on a CPU, all seeds of a shape at once on a GPU."""

from heads_for_depth.training.loop import Diverged, TrainingLoop
from heads_for_depth.training.runs import Attention, execute, initial_model
from heads_for_depth.training.schedule import learning_rate, parameter_groups

__all__ = ["Attention", "Diverged", "TrainingLoop", "execute", "initial_model", "learning_rate", "parameter_groups"]
