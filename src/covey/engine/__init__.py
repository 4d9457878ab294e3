"""Runs prompts on a model: what execution may ask, and models on this machine."""

from covey.engine.local import LocalModel, load

__all__ = ["LocalModel", "load"]
