"""The shared prefixes whose keys and values are resident, as a trie by token.

A node's tokens lie in one span of the pool. Where another prefix leaves a node in its
middle, the node is cut there, so that sharing is exact at any token. The pool may evict
any node that nothing holds; the grove then forgets it.

A *read* of a document is a batch that will ask about it as its anchor. Nodes at which a
document's prefixes end stay while reads of it are expected.
"""

from __future__ import annotations

from covey.arrays import Int32
from covey.engine.residents import Admission, Span
from covey.engine.retention import RecomputeCost, Retention
from covey.engine.spans import SpanPool
from covey.errors import RunError

# What a prefix that two documents share is worth when its batch is over: a further
# document may begin with it. Little, so that it goes before what will surely be read.
OPENING_READS = 0.1


class GroveNode:
    """Some tokens of resident prefixes.

    Attributes:
        parent: the node above, None for the root.
        tokens: (n,) int32.
        start: tokens above the node.
        span: its slots; None for a root without tokens.
        filled: how many of the tokens are computed, from the first on.
        children: nodes below by their first tokens' bytes.
        documents: those of which a prefix ends here and that are expected to be read.
    """

    __slots__ = ("children", "documents", "filled", "parent", "span", "start", "tokens")

    def __init__(self, parent: GroveNode | None, tokens: Int32, start: int, span: Span | None):
        self.parent = parent
        self.tokens = tokens
        self.start = start
        self.span = span
        self.filled = 0
        self.children: dict[bytes, GroveNode] = {}
        self.documents: set[int] = set()

    @property
    def end(self) -> int:
        """Tokens from the root to the node's end."""
        return self.start + len(self.tokens)

    @property
    def resident(self) -> bool:
        """Whether its slots are still its own."""
        return self.span is None or self.span.resident


class Grove:
    """The resident prefixes of a session.

    Args:
        capacity: slots of the arena.
        cost: of computing tokens again.
        preamble: tokens before every document; they stay for the whole session.
        key_tokens: shares of fewer tokens are not looked for, at least 1.
    """

    def __init__(
        self, capacity: int, cost: RecomputeCost, preamble: Int32, key_tokens: int = 1
    ) -> None:
        self.pool = SpanPool(capacity, Retention(cost), self._forget)
        self._key = key_tokens
        self._by_span: dict[int, GroveNode] = {}
        self._nodes_of: dict[int, set[GroveNode]] = {}
        self._reads: dict[int, float] = {}
        self.root = GroveNode(None, preamble, 0, None)
        if len(preamble):
            admission = self.pool.admit(None, [len(preamble)])
            if admission is not None:  # never None: nothing else is admitted
                self.root.span = self.pool.place(admission)

    def match(self, node: GroveNode, tokens: Int32) -> tuple[GroveNode, int]:
        """Follow tokens down from a node, cutting the last one where they leave it.

        Returns:
            the deepest node all of whose tokens, and those above, are computed and as
            given, and how many of the tokens that is.
        """
        done = 0
        while done < len(tokens):
            child = self._child(node, tokens[done:])
            if child is None or child.filled < len(child.tokens):
                break
            size = min(len(child.tokens), len(tokens) - done)
            differs = child.tokens[:size] != tokens[done : done + size]
            same = int(differs.argmax()) if differs.any() else size
            node = child if same == len(child.tokens) else self._cut(child, same)
            done += same
            if same < size:
                break
        return node, done

    def grow(
        self, node: GroveNode, tokens: Int32, *, children: bool
    ) -> tuple[GroveNode, Admission] | None:
        """Give slots to tokens that follow a node's; they are held by the admission.

        Args:
            children: whether prefixes go on below, so that it stays until `close`.

        Returns:
            None while too much is held.
        """
        admission = self.pool.admit(node.span, [len(tokens)])
        if admission is None:
            return None
        span = self.pool.place(admission, pending=int(children))
        child = GroveNode(node, tokens.copy(), node.end, span)
        self._by_span[span.number] = child
        node.children[self._name(tokens)] = child
        return child, admission

    def hold(self, node: GroveNode) -> Admission:
        """Keep a resident node, and those above, where they are."""
        admission = self.pool.admit(node.span, [])
        if admission is None:
            raise RunError("KV accounting is off: a hold that needs no slots was refused")
        return admission

    def close(self, node: GroveNode) -> None:
        """All prefixes below a node that `grow` was told of have been asked about."""
        span = node.span
        if span is not None and span.resident and span.pending:
            self.pool.plan(span, pending=0, reuse=max(span.reuse, OPENING_READS))

    def expect(self, document: int, node: GroveNode | None, reads: float) -> None:
        """A document will be read so often; a prefix of it ends at `node`, if given.

        With no reads left its nodes go, unless others need them.
        """
        nodes = self._nodes_of.setdefault(document, set())
        if node is not None and node.span is not None and node.resident:
            nodes.add(node)
            node.documents.add(document)
        if reads > 0 and nodes:
            self._reads[document] = reads
        else:
            del self._nodes_of[document]
            self._reads.pop(document, None)
        for each in tuple(nodes):
            if reads <= 0:
                each.documents.discard(document)
            if each.span is not None and each.span.resident:
                most = max((self._reads[d] for d in each.documents), default=0.0)
                self.pool.plan(each.span, reuse=most)

    def holds(self, document: int) -> bool:
        """Whether a document is kept for later batches."""
        return document in self._nodes_of

    @property
    def documents(self) -> int:
        """How many documents are kept for later batches."""
        return len(self._nodes_of)

    def extents(self, node: GroveNode) -> list[tuple[int, int, int]]:
        """(depth, slot, length) of every stretch of slots from the root to a node."""
        found: list[tuple[int, int, int]] = []
        at: GroveNode | None = node
        while at is not None:
            if at.span is not None:
                depth, stretches = at.start, []
                for slot, length in at.span.extents:
                    stretches.append((depth, slot, length))
                    depth += length
                found[:0] = stretches
            at = at.parent
        return found

    def _child(self, node: GroveNode, tokens: Int32) -> GroveNode | None:
        key = self._name(tokens)
        found = node.children.get(key)
        if found is None and self._key > 1:
            # A node may be shorter than a name.
            for size in range(len(key) - 4, 0, -4):
                found = node.children.get(key[:size])
                if found is not None:
                    break
        return found

    def _name(self, tokens: Int32) -> bytes:
        return tokens[: self._key].tobytes()

    def _cut(self, node: GroveNode, length: int) -> GroveNode:
        """Cut a node after some of its tokens; returns the upper part, which is new."""
        parent, span = node.parent, node.span
        if parent is None or span is None:
            return node
        upper = GroveNode(parent, node.tokens[:length], node.start, self.pool.cut(span, length))
        upper.filled = length
        if upper.span is not None:
            self._by_span[upper.span.number] = upper
        del parent.children[self._name(node.tokens)]
        parent.children[self._name(upper.tokens)] = upper
        node.parent, node.tokens = upper, node.tokens[length:]
        node.start, node.filled = upper.end, node.filled - length
        upper.children[self._name(node.tokens)] = node
        return upper

    def _forget(self, span: Span) -> None:
        """A span was freed or evicted."""
        node = self._by_span.pop(span.number, None)
        if node is None or node.parent is None:
            return
        siblings = node.parent.children
        if siblings.get(self._name(node.tokens)) is node:
            del siblings[self._name(node.tokens)]
        for document in node.documents:
            nodes = self._nodes_of[document]
            nodes.discard(node)
            if not nodes:
                del self._nodes_of[document]
                self._reads.pop(document, None)
        node.documents = set()
