"""Tools for testing queries without a model."""

from covey.testing.planted import PlantedModel

__all__ = ["PlantedModel"]
