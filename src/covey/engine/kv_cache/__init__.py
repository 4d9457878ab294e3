"""Which tokens' keys and values are kept, in which slots, and until when.

`radix_tree` decides, with `allocator` and `eviction`, and needs no torch; `pool` holds the
tensors. A slot is one token in all layers.
"""
