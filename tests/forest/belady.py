"""The fewest tokens that any eviction policy can compute, for a given order of work.

Belady's rule (1966) with bypass, token by token: at every moment keep the tokens that are
needed again soonest. Tokens cost one each and are as large as one slot, so the rule is
optimal for one order of visits. A token is needed whenever anything below it is, so what
is kept is always whole prefixes of paths. Nothing is charged for the room that work in
flight takes: the bound may be out of reach, but nothing in that order goes below it.
"""

from __future__ import annotations

from collections.abc import Sequence

Visits = Sequence[Sequence[int]]


def fresh_token_bound(
    parent: Sequence[int], length: Sequence[int], visits: Visits, capacity: int
) -> int:
    """Tokens computed at the least when `visits` run in order with `capacity` slots.

    Args:
        parent: each node's parent, -1 at a root; a trie's `parent` will do.
        length: each node's tokens; a trie's `end - start` will do.
        visits: what runs together (a batch), as a list of nodes. Visiting a node needs all
            tokens from its root down to it; within one batch they are computed once. For
            tokens that nothing shares, add their number to the result instead.
        capacity: tokens that can be kept from one batch to the next.
    """
    needed = [_paths(parent, nodes) for nodes in visits]
    next_visit: list[dict[int, int]] = [{} for _ in visits]
    upcoming: dict[int, int] = {}
    for at in range(len(visits) - 1, -1, -1):
        next_visit[at] = {node: upcoming[node] for node in needed[at] if node in upcoming}
        upcoming.update(dict.fromkeys(needed[at], at))
    depth = _depths(parent)
    kept: dict[int, tuple[int, int]] = {}  # node -> (next visit, tokens kept)
    fresh = 0
    for nodes, again in zip(needed, next_visit, strict=True):
        fresh += sum(length[node] - kept.pop(node, (0, 0))[1] for node in nodes)
        kept |= {node: (when, length[node]) for node, when in again.items()}
        room = capacity
        soonest = sorted(kept, key=lambda node: (kept[node][0], depth[node], node))
        for node in soonest:
            when, tokens = kept.pop(node)
            if min(tokens, room):
                kept[node] = (when, min(tokens, room))
            room -= min(tokens, room)
    return fresh


def _paths(parent: Sequence[int], nodes: Sequence[int]) -> set[int]:
    """All nodes on the way to some nodes."""
    found: set[int] = set()
    for node in nodes:
        while node >= 0 and node not in found:
            found.add(node)
            node = int(parent[node])
    return found


def _depths(parent: Sequence[int]) -> list[int]:
    depth: list[int] = []
    for above in parent:
        depth.append(depth[above] + 1 if above >= 0 else 0)
    return depth
