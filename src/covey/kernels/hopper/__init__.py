"""The Hopper implementation of the kernels: Triton, FlashAttention-3 and CUDA.

Nothing here is imported before a model is loaded onto a GPU; `available` says whether it
can be, and `kernels` is the implementation.
"""
