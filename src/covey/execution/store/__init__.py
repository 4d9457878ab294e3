"""Answers kept between runs: where, under which names, and how several processes share them."""
