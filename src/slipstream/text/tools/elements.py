"""The elements inside one call, turned into the JSON text of its arguments while they arrive.

How elements are read:

- An element that holds tags is a list if they are items, else an object; one that holds text is a value (values).
- A place that allows neither lists nor objects but strings, and any place once it holds text, takes tags as text.
- A closing tag whose name is that of an open element closes it and all inside, even in text. An unknown one is text.
- An opening tag may be missing, as real checkpoints leave out the first one of a call: marker, value, closing tag.
- A list or an empty element that takes no text ends before a name that it does not know and the object around it does.
- Nothing is dropped: what has no place among the arguments (text between elements, a name given twice) is handed
  back, for the content of the answer. Where a list holds something that is not an item, it becomes an object in it.

Not here: blocks and calls (parser).
"""

from __future__ import annotations

import json
from typing import Literal

from slipstream.text.tools.shapes import Shape
from slipstream.text.tools.syntax import BLANKS, INVOKE, ITEM, NAMESPACE, Marker, Tag, Text
from slipstream.text.tools.values import TextValue

Kind = Literal["undecided", "text", "object", "list", "refused"]


class _Element:
    """An open element; `name` is None for the object put around something in a list that is not an item."""

    __slots__ = ("kind", "members", "name", "num_children", "shape", "value")

    def __init__(self, name: str | None, shape: Shape, kind: Kind) -> None:
        self.name = name
        self.shape = shape
        self.kind: Kind = kind
        self.value = TextValue(shape.types)
        self.members: set[str] = set()
        self.num_children = 0


class Arguments:
    """Write the arguments of one call.

    Args:
        shape: the shape of the function's parameters.
    """

    def __init__(self, shape: Shape) -> None:
        self._open = [_Element(INVOKE, shape, "object")]
        self._json = ["{"]
        self._unnamed: list[str] | None = None

    def take(self) -> str:
        """Return the JSON text that has become certain since the last time."""
        text = "".join(self._json)
        self._json.clear()
        return text

    @property
    def is_over(self) -> bool:
        """Whether the call was closed."""
        return not self._open

    @property
    def takes_tags_as_text(self) -> bool:
        """Whether an opening tag would be text here."""
        last = self._open[-1]
        return last.kind in ("text", "refused") or (last.kind == "undecided" and last.value.is_text)

    def names_open(self, name: str) -> bool:
        """Return whether an element of this name is open."""
        return any(element.name == name for element in self._open)

    def declares(self, name: str) -> bool:
        """Return whether the schema knows a member of this name in the innermost element, or that is not a call."""
        return len(self._open) > 1 or self._open[-1].shape.declares(name)

    def on(self, event: Text | Marker | Tag) -> str:
        """Take what comes next; return what has no place among the arguments."""
        if isinstance(event, Text):
            return self._text(event.text)
        if isinstance(event, Marker):
            return self._marker()
        return self._closing(event) if event.is_closing else self._opening(event)

    def close(self) -> str:
        """Close the call and all that is open in it; return what has no place among the arguments."""
        left = self._give_up_unnamed()
        while self._open:
            self._close_last()
        return left

    def _text(self, text: str) -> str:
        last = self._open[-1]
        if self._unnamed is not None:
            self._unnamed.append(text)
            return ""
        if last.kind in ("object", "list", "refused"):
            return text
        self._json.append(last.value.feed(text))
        if last.value.is_text:
            last.kind = "text"
        return ""

    def _marker(self) -> str:
        last = self._open[-1]
        if last.kind == "undecided" and not last.value.is_text and "string" not in last.shape.types:
            self._decide(last, None)
        if last.kind not in ("object", "list") or self._unnamed is not None:
            return self._text(NAMESPACE)
        self._unnamed = []
        return ""

    def _opening(self, tag: Tag) -> str:
        if self.takes_tags_as_text:
            return self._text(tag.source)
        left = self._give_up_unnamed()
        self._close_forgotten(tag.name)
        if self._open[-1].kind == "undecided":
            self._decide(self._open[-1], tag.name)
        self._open_child(tag.name)
        return left + tag.source if self._open[-1].kind == "refused" else left

    def _closing(self, tag: Tag) -> str:
        if self.names_open(tag.name):
            left = self._give_up_unnamed()
            if self._open[-1].kind == "refused" and self._open[-1].name == tag.name:
                left += tag.source
            while self._close_last() != tag.name:
                pass
            self._close_wrapping()
            return left
        if self._unnamed is not None:
            value, self._unnamed = "".join(self._unnamed), None
            left = self._opening(Tag(tag.name, is_closing=False))
            return left + self._text(value) + self._closing(tag)
        if self._open[-1].kind in ("object", "list"):
            return tag.source
        return self._text(tag.source)

    def _close_forgotten(self, name: str) -> None:
        """Close lists and empty elements whose closing tag was left out, if the name only makes sense behind them."""
        while len(self._open) > 1:
            last, around = self._open[-1], self._open[-2]
            is_list = last.kind == "list"
            if not is_list and (last.kind != "undecided" or "string" in last.shape.types):
                return
            knows_name = last.shape.item(last.num_children).declares(name) if is_list else last.shape.declares(name)
            if knows_name or name == ITEM or not around.shape.declares(name) or name in around.members:
                return
            self._close_last()

    def _give_up_unnamed(self) -> str:
        value = self._unnamed
        self._unnamed = None
        return NAMESPACE + text if value is not None and (text := "".join(value)).strip(BLANKS) else ""

    def _decide(self, element: _Element, child: str | None) -> None:
        """Make an element, of which only blanks are known, an object or a list."""
        types, shape = element.shape.types, element.shape
        is_list = child == ITEM and ("array" in types or "object" not in types) and not shape.declares(ITEM)
        element.kind = "list" if is_list else "object"
        self._json.append("[" if is_list else "{")

    def _open_child(self, name: str) -> None:
        parent = self._open[-1]
        if parent.kind == "list":
            shape = parent.shape.item(parent.num_children)
            self._json.append("," if parent.num_children else "")
            parent.num_children += 1
            if name == ITEM:
                self._push(name, shape)
                return
            self._json.append("{")
            parent = _Element(None, shape, "object")
            self._open.append(parent)
        elif name in parent.members:
            self._open.append(_Element(name, Shape.of(None), "refused"))
            return
        self._json.append(("," if parent.members else "") + json.dumps(name, ensure_ascii=False) + ":")
        parent.members.add(name)
        self._push(name, parent.shape.member(name))

    def _push(self, name: str, shape: Shape) -> None:
        self._open.append(_Element(name, shape, "undecided"))

    def _close_last(self) -> str | None:
        element = self._open.pop()
        if element.kind in ("undecided", "text"):
            self._json.append(element.value.close())
        elif element.kind != "refused":
            self._json.append("]" if element.kind == "list" else "}")
        return element.name

    def _close_wrapping(self) -> None:
        while self._open and self._open[-1].name is None:
            self._close_last()
