"""The index of full pages by content: what follows what, under a salted chain hash.

A node is one full page: its tokens, and the node before it. The hash only finds a candidate; the tokens and the parent
are then compared, so two contents with one hash can never be taken for each other. Not here: who holds a page. The
owner of the index tells it when a page gets its first holder (`pin`) and loses its last (`unpin`).
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

from slipstream.base.errors import EngineError
from slipstream.cache.logical.pages import Bundle

PageDigest = Callable[[bytes, bytes], bytes]
"""(digest of the page before, packed tokens) -> digest of this page."""

_DIGEST_BYTES = 16


def chain_digest(parent: bytes, tokens: bytes) -> bytes:
    """Return the digest of a page that follows the page with digest `parent`."""
    return blake2b(parent + tokens, digest_size=_DIGEST_BYTES).digest()


def pack_tokens(token_ids: Sequence[int]) -> bytes:
    """Return token ids as bytes, four each, equal exactly when the ids are equal."""
    return array("I", token_ids).tobytes()


class PrefixNode:
    """One full page in the index."""

    __slots__ = ("bundle", "children", "digest", "is_alive", "parent", "tokens")

    def __init__(self, parent: PrefixNode | None, tokens: bytes, digest: bytes, bundle: Bundle) -> None:
        self.parent = parent
        self.tokens = tokens
        self.digest = digest
        self.bundle = bundle
        self.children: set[PrefixNode] = set()
        self.is_alive = True


class PrefixIndex:
    """Full pages by content, with least-recently-used eviction of pages that nobody holds.

    Args:
        salt: everything besides tokens that decides a page's bytes: model, cache format.
        digest: the chain hash; tests pass a poor one to force collisions.
    """

    def __init__(self, salt: bytes, *, digest: PageDigest = chain_digest) -> None:
        self._root_digest = blake2b(salt, digest_size=_DIGEST_BYTES).digest()
        self._digest = digest
        self._nodes: dict[bytes, PrefixNode] = {}
        self._node_of: dict[Bundle, PrefixNode] = {}
        self._unpinned: OrderedDict[PrefixNode, None] = OrderedDict()  # oldest use first

    @property
    def num_unpinned(self) -> int:
        """Pages in the index that nobody holds; all of them can be evicted."""
        return len(self._unpinned)

    @property
    def bundles(self) -> tuple[Bundle, ...]:
        """Every bundle in the index."""
        return tuple(self._node_of)

    def find(self, parent: PrefixNode | None, tokens: bytes) -> PrefixNode | None:
        """Return the page with these tokens after `parent` (None: at the start), or None."""
        node = self._nodes.get(self._digest_after(parent, tokens))
        if node is None or node.parent is not parent or node.tokens != tokens:
            return None
        return node

    def insert(self, parent: PrefixNode | None, tokens: bytes, bundle: Bundle) -> PrefixNode | None:
        """Publish a page that is completely written and has a holder.

        Args:
            parent: the page before it, alive, or None for the first page.
            tokens: its packed tokens.
            bundle: where it lies; not in the index yet, unless the result is its own node.

        Returns:
            The node of this content: a new one; or the one that was there first, whose bundle is then another and
            `bundle` stays with its holder alone; or None when another content has the same hash.
        """
        digest = self._digest_after(parent, tokens)
        node = self._nodes.get(digest)
        if node is not None:
            return node if node.parent is parent and node.tokens == tokens else None
        if bundle in self._node_of or not bundle.num_holders or (parent is not None and not parent.is_alive):
            raise EngineError(f"bundle {bundle.pages} cannot be published: indexed already, unheld, or an orphan")
        node = PrefixNode(parent, tokens, digest, bundle)
        if parent is not None:
            parent.children.add(node)
        self._nodes[digest] = node
        self._node_of[bundle] = node
        return node

    def pin(self, bundle: Bundle) -> None:
        """Note that a bundle without holders got one: it cannot be evicted."""
        del self._unpinned[self._node_of[bundle]]

    def unpin(self, bundle: Bundle) -> bool:
        """Note that a bundle lost its last holder; return False when it is not in the index."""
        node = self._node_of.get(bundle)
        if node is None:
            return False
        self._unpinned[node] = None
        return True

    def evict(self) -> list[Bundle]:
        """Remove the least recently used unheld page, leaves first, and return the bundles that are free now.

        Normally that is one leaf. A page whose own bundle is unheld may have a held page after it (the row that
        wrote it uses a duplicate of the first). When only such pages are left, one goes and takes what follows it
        out of the index; held bundles stay with their holders.
        """
        for _ in range(len(self._unpinned)):
            node = next(iter(self._unpinned))
            if not node.children:
                return self._remove(node)
            self._unpinned.move_to_end(node)
        if not self._unpinned:
            raise EngineError("nothing to evict: every indexed page is held")
        return self._remove(next(iter(self._unpinned)))

    def remove(self, bundle: Bundle) -> list[Bundle]:
        """Take a page and all that follows it out of the index; return the bundles that are free now."""
        node = self._node_of.get(bundle)
        return [] if node is None else self._remove(node)

    def _remove(self, top: PrefixNode) -> list[Bundle]:
        if top.parent is not None:
            top.parent.children.discard(top)
        freed: list[Bundle] = []
        stack = [top]
        while stack:
            node = stack.pop()
            stack.extend(node.children)
            node.children.clear()
            node.is_alive = False
            del self._nodes[node.digest]
            del self._node_of[node.bundle]
            if node in self._unpinned:
                del self._unpinned[node]
                freed.append(node.bundle)
        return freed

    def _digest_after(self, parent: PrefixNode | None, tokens: bytes) -> bytes:
        return self._digest(self._root_digest if parent is None else parent.digest, tokens)

    def check(self) -> None:
        """Assert the index's own invariants."""
        assert {node.digest for node in self._node_of.values()} == set(self._nodes)
        assert len(self._node_of) == len(self._nodes)
        for bundle, node in self._node_of.items():
            assert node.bundle is bundle
            assert node.is_alive
            assert node.digest == self._digest_after(node.parent, node.tokens)
            assert node.parent is None or (node.parent.is_alive and node in node.parent.children)
            assert all(child.parent is node and child.is_alive for child in node.children)
            assert (node in self._unpinned) == (bundle.num_holders == 0)
        assert all(node.is_alive for node in self._unpinned)
