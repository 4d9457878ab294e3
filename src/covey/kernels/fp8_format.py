"""FP8 with scales, as checkpoints hold it and kernels multiply it, in numbers; no torch here.

Values are e4m3. A scale is the largest magnitude of what shares it over `FP8_MAX`, float32.
"""

FP8_BLOCK = 128  # rows and columns of a weight that share a scale
FP8_GROUP = 128  # neighbours in a row of an activation that share a scale
FP8_MAX = 448.0  # the largest finite value
FP8_LEAST = 1e-10  # the least magnitude behind a scale: a group of zeros must not divide by zero
