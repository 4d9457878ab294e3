"""A model that is loaded when it is first needed."""

from __future__ import annotations

from covey.engine.base import Engine, ModelSource


class LazyModel:
    """What is known of a model, and its engine once somebody asks for that.

    Args:
        source: the model.

    Attributes:
        source: as given.
        loaded: its engine; None before it is loaded.
    """

    def __init__(self, source: ModelSource) -> None:
        self.source = source
        self.loaded: Engine | None = None

    def engine(self) -> Engine:
        """The engine, loaded now if it was not.

        Raises:
            ModelError: it cannot be loaded.
        """
        if self.loaded is None:
            self.loaded = self.source.open()
        return self.loaded

    def identity(self) -> tuple[str, str] | None:
        """Name and fingerprint, None where its files do not tell and it is not loaded.

        Raises:
            ModelError: its files are damaged.
        """
        if self.loaded is not None:
            name, fingerprint = self.loaded.name, self.loaded.fingerprint
        else:
            name, fingerprint = self.source.name, self.source.profile().fingerprint
        return None if fingerprint is None else (name, fingerprint)
