"""The prompt forest: every prompt of an operator as columns, known before it runs.

    documents = build_trie(concatenate([(preamble, zeros), (texts, rows)]))
    suffixes = build_trie(concatenate([(instruction, zeros), (partners, rows), (cue, zeros)]))
    forest = ask_all(documents, suffixes)              # or ask_pairs(…)
    forest.size, forest.requested_tokens               # minimum and requested tokens

Nothing is stored per prompt when all suffixes are asked of all hosts, so five million
pairs are a few kilobytes beside their two tries.

**Packing.** The forest is one depth-first stream of `forest.size` tokens in which parents
stand before children. A forward pass takes any ranges of that stream ("pieces"):

    packed = pack(forest, begin, end)     # what the forward pass needs
    context = above(forest, begin, end)   # whose KV it reads besides

Run in order, every token is computed once, and cuts may fall anywhere; where documents are
resident already, the instances below them run in any order. Within a piece token i sees
token k exactly when `k <= i < packed.subtree_ends[k]`; it sees a node of `above` when
`i < subtree_ends` of that node. `packed.open` are the tokens whose KV must outlive the pass:
none where cuts fall between whole trees. Answers come back by `packed.prompts`;
`forest.prompt_of` finds the prompt of an input pair, so equal prompts are computed once and
read many times.

**What is shared.** All within the document trie, and all within the suffixes of one
document. A suffix is not shared with the continuation of a document that has it as an
ancestor, and suffixes are not shared between documents: neither sees the same tokens
above it. `flatten` gives up shares that cost more than they save.

**Nested documents.** `ends_last` moves what is asked of a document behind the longer
documents that begin with it, so that a chain of snapshots is one stretch of tokens.
"""

from covey.prompts.forest.forest import Forest, ask_all, ask_pairs
from covey.prompts.forest.pack import Above, Packed, above, pack
from covey.prompts.forest.trie import Trie, build_trie, ends_last, flatten, overlap

__all__ = [
    "Above",
    "Forest",
    "Packed",
    "Trie",
    "above",
    "ask_all",
    "ask_pairs",
    "build_trie",
    "ends_last",
    "flatten",
    "overlap",
    "pack",
]
