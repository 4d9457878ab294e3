"""Covey as an engine of the benchmark's own harness, quail_b; nothing else needs it."""
