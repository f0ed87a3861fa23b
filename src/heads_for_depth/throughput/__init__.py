"""Latency, throughput, training step, memory and operations of full-size shapes, before and after, in alternation."""
