"""Runs prompts on a model: what execution may ask, and models on this machine."""

from covey.engine.local import LocalModel, load, model_source

__all__ = ["LocalModel", "load", "model_source"]
