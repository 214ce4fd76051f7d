"""A session's log over all its generations: read as one sequence of records, appended to at its end, sealed in pieces.

`log.N` with the highest N is open, all below it are sealed (store/sealed.py). A generation is sealed when its steps are
filed and it has grown: it is written anew without the nodes and renamed over itself, then `log.N+1` begins. A process that
follows the log sees another file in the place of the one it read and begins anew at the newest generation.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from store import layout
from store.chain import Head, commitment, genesis, link
from store.errors import IntegrityCheckError, StoreFormatError, StoreReadError
from store.jcs import sha256_hex
from store.log import LOG_FORMAT, LOG_VERSION, Damage, Log, Record, frame, records
from store.node import IndexEntry
from store.sealed import KEPT, Replaced, Sealed, sealed_bytes

T = TypeVar("T")
_NAME = re.compile(r"log\.(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class State:
    """How far the log was read: `generation` and `position` (bytes in it), the chain's end, `epoch` (how often something
    old was changed), `steps` that had an entry when the generation began, and what was `exported`: steps, the hash of the
    file, and of the one before."""

    generation: int
    position: int
    head: Head
    epoch: int = 0
    steps: int = 0
    exported: tuple[int, str, str] = (0, "", "")


class Journal:
    """The log of one session folder. Append, seal and rewrite under the writer lock only."""

    def __init__(self, folder: Path, session: str) -> None:
        self.folder, self.session = folder, session
        self.state = State(0, 0, Head(0, genesis(session)))
        self.damage: list[IntegrityCheckError] = []  # stretches that do not read
        self._seen = (0, 0)  # inode and size of the open generation when it was read last
        self._sealed: dict[int, Sealed] = {}
        self._links: dict[int, str] = {}  # of the open generation, by length of the chain
        self._ended = False  # whether the newest generation is sealed and no other begun

    # -- reading

    @property
    def path(self) -> Path:
        """The generation that was read last."""
        return self._path(self.state.generation)

    def _path(self, generation: int) -> Path:
        return self.folder / f"log.{generation}"

    def generations(self) -> list[int]:
        """The numbers of all log files, ascending. Raises StoreReadError."""
        try:
            names = [_NAME.fullmatch(child.name) for child in self.folder.iterdir()]
        except OSError as error:
            raise StoreReadError(self.folder, error) from error
        return sorted(int(name[1]) for name in names if name)

    def begin(self) -> list[Record]:
        """Read the newest generation from its begin. What was known before is forgotten."""
        newest = (self.generations() or [0])[-1]
        self._sealed.clear()
        self._links.clear()
        self.damage.clear()
        if newest and not self._begins(newest):
            newest -= 1  # its process died before the head was whole
        ended = Sealed.open(self._path(newest)) if self._path(newest).exists() else None
        self._ended = ended is not None
        if ended is not None:  # the next writer begins the next one
            self._seen = self._look(newest)
            head, (steps, sha256, before) = Head(ended.count, ended.link), ended.exported
            self.state = State(newest, 0, head, ended.epoch, ended.steps, (steps, sha256, before))
            return []
        self.state = State(newest, 0, Head(0, genesis(self.session)))
        self._seen = (0, 0)
        return self.fresh()

    def _begins(self, generation: int) -> bool:
        """Whether a whole record stands in a generation."""
        return any(isinstance(one, Record) for one in records(Log(self._path(generation)).read()))

    def _look(self, generation: int) -> tuple[int, int]:
        try:
            found = self._path(generation).stat()
        except OSError as error:
            raise StoreReadError(self._path(generation), error) from error
        return found.st_ino, found.st_size

    def moved(self) -> bool:
        """Whether the generation that was read is no more the newest, or another file by now, because it was sealed.

        A file's number may be used again for another one, but not while the file that was read is still in its place.
        """
        if self._path(self.state.generation + 1).exists():
            return True
        return not self._ended and self._seen[0] not in (0, self._look(self.state.generation)[0])

    def fresh(self) -> list[Record]:
        """The records behind what was read, in order. Damaged stretches go to `damage`. Raises StoreReadError."""
        seen = self._look(self.state.generation)
        if seen == self._seen or self._ended:
            return []
        self._seen = seen
        out: list[Record] = []
        for one in records(Log(self.path).read(self.state.position), self.state.position):
            if isinstance(one, Damage):
                what = f"{self.path.name} bytes {one.start} to {one.stop}"
                self.damage.append(IntegrityCheckError(None, what, "whole records", "damaged"))
            elif self._take(one):
                out.append(one)
        return out

    def _take(self, one: Record) -> bool:
        """Follow a record; False for one that makes no sense."""
        self.state = replace(self.state, position=one.stop)
        body = one.body
        try:
            match body["record"]:
                case "head":
                    self._check_head(body)
                    head = Head.parse(body["chain"])
                    epoch, steps, (exported, sha256, before) = body["epoch"], body["steps"], body["exported"]
                    self.state = replace(
                        self.state, head=head, epoch=epoch, steps=steps, exported=(exported, sha256, before)
                    )
                case "archive" | "forgotten":
                    self.state = replace(self.state, head=Head(body["seq"] + 1, body["link"]))
                    self._links[body["seq"] + 1] = body["link"]
                    if body.get("again"):
                        self.state = replace(self.state, epoch=self.state.epoch + 1)
                case "erase":
                    self.state = replace(self.state, epoch=self.state.epoch + 1)
                case "exported":
                    self.state = replace(self.state, exported=(body["steps"], body["sha256"], body["before"]))
                case "filed" | "erased" | "table" | "seal":
                    pass
                case other:
                    raise ValueError(f"record {other!r}")
        except (KeyError, TypeError, ValueError) as error:
            self.spoiled(one, error)
            return False
        return True

    def spoiled(self, one: Record, error: Exception) -> None:
        """A record reads whole and makes no sense."""
        what = f"{self.path.name} at byte {one.start}"
        self.damage.append(IntegrityCheckError(None, what, "a known record", f"unreadable ({error!r})"))

    def _check_head(self, head: dict[str, Any]) -> None:
        if head.get("format") != LOG_FORMAT:
            raise StoreFormatError(self.path, f"format {head.get('format')!r} is not ours; nothing was touched")
        if head.get("version") != LOG_VERSION:
            reason = f"version {head.get('version')}, this program reads {LOG_VERSION}; update prompt-mmu"
            raise StoreFormatError(self.path, reason)
        if head.get("session") != self.session:
            raise StoreFormatError(self.path, f"holds session {head.get('session')!r}, not {self.session!r}")

    def head_record(self, generation: int = 0) -> dict[str, Any]:
        """The first record of a generation that begins where the state stands."""
        return {
            "record": "head",
            "format": LOG_FORMAT,
            "version": LOG_VERSION,
            "session": self.session,
            "generation": generation,
            "chain": str(self.state.head),
            "epoch": self.state.epoch,
            "steps": self.state.steps,
            "exported": list(self.state.exported),
        }

    @property
    def is_begun(self) -> bool:
        """Whether a whole record was found, or a seal behind which the next writer begins."""
        return self.state.position > 0 or self._ended

    def begins_with(self, whole: bytes) -> bool:
        """Whether the first generation holds a beginning of these bytes and nothing else."""
        return self.path.exists() and whole.startswith(Log(self.path).read()[: len(whole)])

    def torn(self) -> int:
        """Bytes behind the last whole record: a write that was never acknowledged."""
        return max(0, self._look(self.state.generation)[1] - self.state.position)

    # -- sealed generations

    @property
    def sealed_count(self) -> int:
        """How many generations are sealed: those of the numbers below."""
        return self.state.generation + self._ended

    def sealed_at(self, number: int) -> Sealed:
        """A sealed generation; each is looked at once. What does not open is damage, and empty."""
        if number not in self._sealed:
            self._sealed[number] = self._open_sealed(number)
        return self._sealed[number]

    def sealed(self) -> Sequence[Sealed]:
        """The sealed generations, oldest first."""
        return [self.sealed_at(number) for number in range(self.sealed_count)]

    def steady(self, look: Callable[[], T]) -> T:
        """What a look at sealed generations finds; they are looked at again if one is written anew meanwhile."""
        while True:
            try:
                return look()
            except Replaced:
                self._sealed.clear()

    def holder(self, step_id: int) -> Sealed | None:
        """The sealed generation that has the newest entry of a step. Raises Replaced (see `steady`).

        While nothing old was changed a step is in one alone, and ids mostly ascend: a few are looked at, not all.
        """
        if self.state.epoch == 0:
            at = bisect_left(range(self.sealed_count), step_id, key=lambda number: self.sealed_at(number).last)
            if at < self.sealed_count and self.sealed_at(at).place(step_id) is not None:
                return self.sealed_at(at)
        return next((one for one in reversed(self.sealed()) if one.place(step_id) is not None), None)

    def _open_sealed(self, number: int) -> Sealed:
        path = self._path(number)
        try:
            found = Sealed.open(path)
            why = "no seal ends it"
        except StoreReadError as error:
            found, why = None, str(error)
        if found is None:
            self.damage.append(IntegrityCheckError(None, path.name, "a sealed generation", why))
            found = Sealed.damaged(path, number, self.sealed_at(number - 1).count if number else 0)
        return found

    def open_records(self) -> Iterator[Record]:
        """The records of the newest generation."""
        return (one for one in records(Log(self.path).read()) if isinstance(one, Record))

    def sealed_entries(self, count: int) -> Iterator[IndexEntry]:
        """Of the sealed generations the entries behind the chain's first `count`, in order. What does not read is passed
        over."""
        at = bisect_right(range(self.sealed_count), count, key=lambda number: self.sealed_at(number).count)
        for number in range(at, self.sealed_count):
            yield from self.steady(lambda: list(self.sealed_at(number).entries(count)))  # noqa: B023 - called at once

    def records(self, generation: int) -> Iterator[Record | Damage]:
        """Everything in a generation, in order. Raises StoreReadError."""
        return records(Log(self._path(generation)).read())

    def link_at(self, count: int) -> str | None:
        """The link after the first `count` entries; None if the chain is shorter or it cannot be read."""
        if count in self._links:
            return self._links[count]
        if count == self.state.head.count:
            return self.state.head.link
        if count == 0:
            return genesis(self.session)
        at = bisect_left(range(self.sealed_count), count, key=lambda number: self.sealed_at(number).count)
        if at < self.sealed_count:
            generation = self.sealed_at(at)
            return (
                generation.link
                if generation.count == count
                else self.steady(lambda: _link_at(self.sealed_at(at), count))
            )
        return None

    # -- writing

    def chained(self, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Archive records with their place in the chain. Each has an `entry` and its `salt`."""
        head, out = self.state.head, []
        for body in bodies:
            head = Head(head.count + 1, link(head.link, commitment(body["salt"], body["entry"])))
            out.append({**body, "seq": head.count - 1, "link": head.link})
        return out

    def append(self, bodies: Sequence[dict[str, Any]], *, flush: bool = True) -> None:
        """Add records. Bytes behind the last whole one, a write that was never acknowledged, are kept aside first.

        Raises StoreWriteError; the log then stands as it was.
        """
        at, generation = self.state.position, self.state.generation + self._ended
        path = self._path(generation)
        if not at:
            bodies = [self.head_record(generation), *bodies]
        log, frames = Log(path), [frame(body) for body in bodies]
        if path.exists() and path.stat().st_size > at:
            self._set_aside(f"{path.name}.tail-{at}", log.read(at))
        log.append(frames, at, flush=flush)
        self.state, self._ended = replace(self.state, generation=generation), False
        for body, raw in zip(bodies, frames, strict=True):
            self._take(Record(at, at := at + len(raw), body))
        self._seen = self._look(generation)

    def _set_aside(self, name: str, data: bytes) -> None:
        layout.private_folder(self.folder / layout.QUARANTINE)
        layout.replace(self.folder / layout.QUARANTINE / f"{name}.{sha256_hex(data)[:8]}", data)

    def seal(self, steps: int) -> None:
        """Seal the open generation and begin the next. All of its steps are filed. `steps` have an entry now.

        Raises StoreWriteError; then the log stands as it was, or is sealed and the next writer begins the next generation.
        """
        if self._ended:  # it is sealed, and the next one was not begun
            return self.append([])
        raw = Log(self.path).read()
        for one in records(raw):
            if isinstance(one, Damage):
                self._set_aside(f"{self.path.name}.damaged-{one.start}", raw[one.start : one.stop])
        found = [one.body for one in records(raw) if isinstance(one, Record)]
        state = self.state
        head = next(body for body in found if body["record"] == "head")
        seal = {
            "generation": state.generation,
            "before": Head.parse(head["chain"]).count,
            "count": state.head.count,
            "link": state.head.link,
            "epoch": state.epoch,
            "steps": steps,
            "exported": list(state.exported),
        }
        layout.replace(self.path, sealed_bytes(head, (body for body in found if body["record"] in KEPT), seal))
        self._sealed.pop(state.generation, None)
        self.state, self._ended = replace(state, position=0, steps=steps), True
        self.append([])
        return layout.sync(self.folder)

    def rewrite(self, generation: Sealed, erased: dict[int, str]) -> None:
        """Write a sealed generation anew without the entries of some steps (step id: why); their commitments stay."""
        found = [one.body for one in generation.records() if isinstance(one, Record)]
        seal = {name: value for name, value in found[-1].items() if name not in {"record", "first", "last", "table"}}
        bodies = [_erased(body, erased) for body in found if body["record"] in KEPT]
        self._sealed.pop(generation.generation, None)  # also if the disk refuses half-way
        layout.replace(generation.path, sealed_bytes(found[0], bodies, seal))


def _erased(body: dict[str, Any], erased: dict[int, str]) -> dict[str, Any]:
    if body["record"] != "archive" or (step_id := body["entry"]["step_id"]) not in erased:
        return body
    kept = {"seq": body["seq"], "link": body["link"], "commitment": commitment(body["salt"], body["entry"])}
    return {"record": "forgotten", "step": step_id, "why": erased[step_id], **kept}


def _link_at(generation: Sealed, count: int) -> str | None:
    for one in generation.records():
        if isinstance(one, Record) and one.body.get("record") in KEPT and one.body.get("seq") == count - 1:
            return str(one.body["link"])
    return None
