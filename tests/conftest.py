"""Hypothesis for all tests: the same examples every time, and no clock on a shared machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("covey", derandomize=True, deadline=None)
settings.load_profile("covey")
