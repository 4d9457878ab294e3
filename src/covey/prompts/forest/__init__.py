"""The prompt forest: every prompt of an operator as columns, known before it runs.

    documents = build_trie(concatenate([(preamble, zeros), (texts, rows)]))
    suffixes = build_trie(concatenate([(frame, zeros), (partners, rows), (cue, zeros)]))
    forest = ask_all(documents, suffixes)              # or ask_pairs(…)
    forest.size, forest.requested_tokens               # minimum and requested tokens

Nothing is stored per prompt when all suffixes are asked of all hosts, so five million
pairs are a few kilobytes beside their two tries.

**Packing.** The forest is one depth-first stream of `forest.size` tokens in which parents
stand before children. A chunk is any list of ranges of that stream ("pieces"):

    begin, end, chunks = cut(np.array([0]), np.array([forest.size]), budget)
    for c in range(len(chunks) - 1):
        pieces = slice(chunks[c], chunks[c + 1])
        packed = pack(forest, begin[pieces], end[pieces])     # what the forward pass needs
        context = above(forest, begin[pieces], end[pieces])   # whose KV it reads besides

Run in that order, every token is computed once, all chunks but the last are full, and
cuts may fall anywhere. Where documents are resident already (survivors of a filter),
pieces are `forest.instance_ranges(hosts)` instead, in any order; `floor_cut` moves a cut
off the inside of a partner. Within a piece token i sees token k exactly when
`k <= i < packed.subtree_ends[k]`; it sees a node of `above` when `i < subtree_ends` of that node.
`packed.open` are the tokens whose KV must outlive the chunk: none where cuts fall between
whole trees. `packed.documents` and `packed.instances` say which nodes and hosts the tokens
belong to, for whoever gives them slots. Answers come back by `packed.prompts`;
`forest.prompt_of` finds the prompt of an input pair, so equal prompts are computed once and
read many times.

**What is shared.** All within the document trie, and all within the suffixes of one
document. A suffix is not shared with the continuation of a document that has it as an
ancestor, and suffixes are not shared between documents: neither sees the same tokens
above it. `flatten` gives up shares that cost more than they save, and says how much.

**Nested documents.** `ends_last` moves what is asked of a document behind the longer
documents that begin with it, so that a chain of snapshots is one stretch of tokens.
"""

from covey.prompts.forest.cuts import Above, above, cut, floor_cut
from covey.prompts.forest.flatten import flatten
from covey.prompts.forest.forest import Chosen, Forest, ask_all, ask_pairs
from covey.prompts.forest.pack import Packed, Segments, pack
from covey.prompts.forest.trie import Stream, Trie, build_trie, ends_last, overlap

__all__ = [
    "Above",
    "Chosen",
    "Forest",
    "Packed",
    "Segments",
    "Stream",
    "Trie",
    "above",
    "ask_all",
    "ask_pairs",
    "build_trie",
    "cut",
    "ends_last",
    "flatten",
    "floor_cut",
    "overlap",
    "pack",
]
