"""How much the tests try: some in `make test`, more in `make fuzz`, as the environment says.

`COVEY_FUZZ_EXAMPLES` is the number of random examples of the differential tests, to which those of
other tests are in proportion, `COVEY_FUZZ_KILLS` that of kills and interrupts, `COVEY_FUZZ_SEED`
the seed. A test that tries more where it may has the mark `fuzz`: `make fuzz` runs no others.
"""

from __future__ import annotations

import os

from hypothesis import settings

USUAL = 1000
EXAMPLES = int(os.environ.get("COVEY_FUZZ_EXAMPLES", USUAL))
KILLS = int(os.environ.get("COVEY_FUZZ_KILLS", "3"))
SEED = int(os.environ.get("COVEY_FUZZ_SEED", "0"))
# Whether all is tried that there is, where an ordinary run takes some.
THOROUGH = EXAMPLES > USUAL


def scaled(usual: float) -> int:
    """What is `usual` in an ordinary run, in proportion to the examples."""
    return max(1, round(usual * EXAMPLES / USUAL))


def examples(usual: int) -> settings:
    """Decorator: so many examples of a property in an ordinary run."""
    return settings(max_examples=scaled(usual))
