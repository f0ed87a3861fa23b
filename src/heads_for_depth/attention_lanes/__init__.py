"""Softmax attention for many small heads on a CPU, compiled on first use; where that fails, torch's own attention."""

from heads_for_depth.attention_lanes.compiling import LanesUnavailable
from heads_for_depth.attention_lanes.operator import Availability, availability, lane_attention
from heads_for_depth.attention_lanes.switching import AttentionKernel, use_lanes

__all__ = ["AttentionKernel", "Availability", "LanesUnavailable", "availability", "lane_attention", "use_lanes"]
