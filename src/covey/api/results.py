"""The forms of a result, for whatever stands for a query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from covey.api.forecast import Estimate
from covey.api.query import Query
from covey.execution.report import Report

if TYPE_CHECKING:
    import pandas
    import polars


class Results(ABC):
    """Hands the forms of a result on from its query."""

    @abstractmethod
    def query(self) -> Query:
        """The query; the same one every time."""

    def explain(self, format: str = "text", *, analyze: bool = False) -> str:
        """See `Query.explain`."""
        return self.query().explain(format, analyze=analyze)

    def estimate(self) -> Estimate:
        """See `Query.estimate`."""
        return self.query().estimate()

    def df(self) -> pandas.DataFrame:
        """The result as a pandas frame."""
        return self.query().df()

    def pl(self) -> polars.DataFrame:
        """The result as a polars frame."""
        return self.query().pl()

    def arrow(self) -> pa.Table:
        """The result as an Arrow table."""
        return self.query().arrow()

    def batches(self, *, early: bool = False) -> Generator[pa.RecordBatch, None, None]:
        """See `Query.batches`."""
        return self.query().batches(early=early)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The result as Python tuples."""
        return self.query().fetchall()

    @property
    def report(self) -> Report:
        """What the run did; runs the query."""
        return self.query().report
