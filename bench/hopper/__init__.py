"""Measurements of Covey on a Hopper GPU: `python bench/hopper COMMAND [CHECKPOINT] [OPTIONS]`."""
