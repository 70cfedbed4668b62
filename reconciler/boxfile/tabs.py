"""Tabs outside quotes: libyaml takes them in places where PyYAML's own parser does not.

Refused in all of these places, so that a Boxfile means the same to both.
"""

from __future__ import annotations

import re

_COMMENT_OR_TAB = re.compile("#[^\r\n]*|\t")
_LINE_END = re.compile("[\r\n]")


class TabSearch:
    """Finds the first tab that is neither in a comment nor in a text where it belongs."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._any = "\t" in text
        self._read_to = 0
        self.found: int | None = None

    def scalar(self, style: str | None, start: int, end: int) -> None:
        """Look up to the end of a scalar, the next one after those before."""
        if not self._any:
            return
        self._between(start)
        self._inside(style, start, end)
        self._read_to = end

    def rest(self) -> None:
        """Look through what comes after the last scalar."""
        if self._any:
            self._between(len(self._text))

    def _between(self, upto: int) -> None:
        for found in _COMMENT_OR_TAB.finditer(self._text, self._read_to, upto):
            if found[0] == "\t":
                self._note(found.start())
                return

    def _inside(self, style: str | None, start: int, end: int) -> None:
        """In unquoted scalars, and in the first line of block scalars."""
        if style in {"|", ">"}:
            line_end = _LINE_END.search(self._text, start, end)
            end = line_end.start() if line_end else end
        if not style or style in {"|", ">"}:
            tab = self._text.find("\t", start, end)
            if tab >= 0:
                self._note(tab)

    def _note(self, index: int) -> None:
        if self.found is None:
            self.found = index
