"""The Hopper implementation of the kernels: Triton, FlashAttention-3 and CUDA.

Nothing here is imported before a model is loaded onto a GPU. `kernels` is the implementation;
`attention_split` deals a batch's attention out to `flash_attention` and `packed_attention`;
`linear` chooses what multiplies in FP8, `fp8_gemm` first.
"""
