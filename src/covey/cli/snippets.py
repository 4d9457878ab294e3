"""Movie-review sentences with people's ratings, from the source package of vaderSentiment 0.5.

    pip download --no-binary :all: --no-deps vaderSentiment==0.5
    covey bench quality --movie-reviews vaderSentiment-0.5.zip

The file holds 10,605 sentences, each rated from -4 to 4 by twenty people (Hutto and Gilbert,
ICWSM 2014). It is read where it lies; Covey brings none of it.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

from covey.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_ARCHIVE = "hutto_ICWSM_2014.tar.gz"
_RATINGS = "movieReviewSnippets_GroundTruth.txt"


def read_snippets(path: str) -> pa.Table:
    """Sentences and their mean ratings, in the order of the file.

    Args:
        path: the source package, a .zip.

    Returns:
        id int64, rating float64 and body string.

    Raises:
        InputError: there is no such file, or it is another package.
    """
    import pyarrow as pa

    try:
        lines = _ratings(path).decode("utf-8").splitlines()
        rows = [line.split("\t", 2) for line in lines if line.strip()]
        return pa.table(
            {
                "id": pa.array([int(number) for number, _, _ in rows], pa.int64()),
                "rating": pa.array([float(rating) for _, rating, _ in rows], pa.float64()),
                "body": pa.array([text.strip() for _, _, text in rows], pa.string()),
            }
        )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise InputError(
            f"{path} is not the source package of vaderSentiment 0.5 ({error}). Fetch it: pip"
            " download --no-binary :all: --no-deps vaderSentiment==0.5"
        ) from None


def _ratings(path: str) -> bytes:
    """The file with the ratings: in an archive inside the package."""
    with zipfile.ZipFile(path) as package:
        name = _ending(package.namelist(), _ARCHIVE)
        archive = io.BytesIO(package.read(name))
    with tarfile.open(fileobj=archive, mode="r:gz") as files:
        member = files.extractfile(_ending(files.getnames(), _RATINGS))
        if member is None:
            raise KeyError(_RATINGS)
        return member.read()


def _ending(names: list[str], end: str) -> str:
    # A Mac's archive has a second file for each, whose name begins with a dot.
    found = [name for name in names if name.endswith(f"/{end}")]
    if not found:
        raise KeyError(f"it has no {end}")
    return found[0]
