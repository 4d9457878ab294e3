"""Other engines on the suite's work, each in its own process and environment.

The scripts import numpy, their engine and `protocol`, nothing of Covey: they run in an
environment where Covey is not installed. `suite.peering` writes the work and reads the answer.
"""
