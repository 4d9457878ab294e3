"""Tools and tests of the prompt forest; a package, lest bench/forest.py be taken for it."""
