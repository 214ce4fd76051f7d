"""The index of a store: opened from the files that were left beside it, or derived anew; kept up with what is archived.

The files are disposable. `postings-<since>-<count>.segment` stands for the entries archived from number `since` to `count`.
It is used if the store confirms its epoch and the link of its last entry. Two processes may both write: each file is complete
when it gets its name, and what it says depends on the history alone. A file that cannot be written is no fault: the segment
then lives in memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mmu.errors import DamagedSegmentError
from mmu.postings.index import TAIL, Index
from mmu.postings.tail import Tail
from store import PROJECTION_VERSION, IndexEntry, Progress, Version

if TYPE_CHECKING:
    from mmu.postings.sealed import Sealed
    from mmu.postings.segment import Segment

Answer = TypeVar("Answer")

_NAME = re.compile(r"postings-([0-9]{12})-([0-9]{12})\.segment")
_BULK = 8  # times a tail: more than that is sorted at once instead of step by step


class History(Protocol):
    """What the index asks of a store (see `ColdStore`)."""

    @property
    def derived(self) -> Path | None: ...

    @property
    def entries(self) -> Mapping[int, IndexEntry]: ...

    @property
    def version(self) -> Version: ...

    def recent(self, count: int) -> Sequence[IndexEntry]: ...

    def link_at(self, count: int) -> str | None: ...


class Kept:
    """An index that follows a store. `progress` is called while a large archive is read anew, `tail` is for tests."""

    def __init__(self, store: History, progress: Progress | None = None, tail: int = TAIL) -> None:
        self._store = store
        self._progress, self._limit = progress, tail
        self._damaged = False  # whether a file was found damaged, and was derived anew
        self._open()

    def follow(self) -> None:
        """Take in what the store holds beyond what is indexed. If anything old was changed, all is read anew."""
        version = self._store.version
        if version.epoch != self._epoch or version.count < self._count:
            self._open()
        elif version.count > self._count:
            try:
                self._add(self._store.recent(self._count))
            except DamagedSegmentError:
                self.rebuild()

    def ask(self, question: Callable[[Index], Answer]) -> Answer:
        """The answer to a question. If a segment turns out to be damaged, the index is built anew and asked again."""
        try:
            return question(self.index)
        except DamagedSegmentError:
            self.rebuild()
            return question(self.index)

    def validate(self) -> bool:
        """Check every byte of the segments. If one is damaged, or was when it was opened, the index is built anew, and the
        answer is False."""
        try:
            for shard in self.index.sealed:
                shard.segment.check_all()
        except DamagedSegmentError:
            self.rebuild()
            return False
        return not self._damaged

    def rebuild(self, progress: Progress | None = None) -> None:
        """Delete the files and derive the index from the store's entries."""
        self._progress = progress or self._progress
        if self._store.derived is not None:
            with contextlib.suppress(OSError):  # a file that cannot be deleted is not read again here either
                drop(self._store.derived)
        self._begin(())

    def _open(self) -> None:
        self._epoch = self._store.version.epoch
        try:
            self._begin(self._segments(self._store.version.count))
        except DamagedSegmentError:
            self.rebuild()

    def _begin(self, segments: Iterable[Segment]) -> None:
        self._epoch, count = self._store.version.epoch, self._store.version.count
        self._count = 0
        self.index = Index(self._limit, self._sealed)
        for segment in segments:
            self._restore(segment)
        if self._count == 0 and count > _BULK * self._limit:
            self._derive()
        elif count > self._count:
            self._add(self._store.recent(self._count))

    def _add(self, entries: Sequence[IndexEntry]) -> None:
        for entry in entries:
            self._count += 1
            self.index.add(entry.step_id, entry.identifiers, entry.tokens)
        self._count = self._store.version.count  # an entry that does not read, or was forgotten, is not among them

    def _restore(self, segment: Segment) -> None:
        from mmu.postings.sealed import Sealed  # noqa: PLC0415 - loads numpy

        for shard in self.index.sealed:
            for step_id in segment.ids[segment.slots_in(shard.segment)].tolist():
                shard.remove(step_id)
        self.index.sealed.append(Sealed(segment))
        self._count = segment.stamp.count

    def _derive(self) -> None:
        from mmu.postings.seal import of_many  # noqa: PLC0415 - loads numpy
        from mmu.postings.segment import Segment  # noqa: PLC0415

        entries = self._store.entries
        steps = ((entry.step_id, entry.identifiers, entry.tokens) for entry in entries.values())
        self._count = self._store.version.count
        data = of_many(steps, len(entries), self._stamp(0), self._progress)
        self._restore(Segment(self._written(data, 0)))

    # -- files

    def _segments(self, count: int) -> Iterator[Segment]:
        """The segments that stand for the store's history, the large one first; those that do not fit are left alone."""
        folder = self._store.derived
        if folder is None:
            return
        covered = 0
        for _ in range(2):
            segments = (
                self._segment(path, covered, until) for until, path in _files(folder, covered) if until <= count
            )
            found = next(filter(None, segments), None)
            if found is None:
                return
            covered = found.stamp.count
            yield found

    def _segment(self, path: Path, since: int, count: int) -> Segment | None:
        from mmu.postings.segment import Segment  # noqa: PLC0415 - loads numpy

        try:
            segment = Segment(_mapped(path))
        except OSError:
            return None
        except DamagedSegmentError:
            self._damaged = True
            return None
        stamp = segment.stamp
        link = self._store.link_at(count)
        fits = (stamp.epoch, stamp.since, stamp.count, stamp.terms) == (self._epoch, since, count, PROJECTION_VERSION)
        return segment if fits and link and stamp.link == link else None

    def _stamp(self, since: int) -> Any:
        from mmu.postings.segment import Stamp  # noqa: PLC0415 - loads numpy

        return Stamp(self._epoch, since, self._count, self._store.link_at(self._count) or "", PROJECTION_VERSION)

    def _sealed(self, shards: Sequence[Sealed], tail: Tail, whole: bool) -> Any:
        from mmu.postings.seal import joined  # noqa: PLC0415 - loads numpy

        since = 0 if whole else self.index.sealed[0].segment.stamp.count
        return self._written(joined(shards, tail, self._stamp(since)), since)

    def _written(self, data: bytearray, since: int) -> Any:
        """A segment's bytes in a file, mapped; the bytes themselves if that fails or has no place."""
        folder = self._store.derived
        if folder is None:
            return data
        path = folder / f"postings-{since:012}-{self._count:012}.segment"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _tidy(folder)
            _write(path, data)
            for other in folder.glob("postings-*.segment"):
                if other != path and _within(other, since, self._count):
                    other.unlink(missing_ok=True)
            return _mapped(path)
        except OSError:  # a full or read-only disk: the index lives in memory, and is derived again by the next process
            return data


def drop(folder: Path) -> None:
    """Delete the files of an index. Raises OSError if one cannot be deleted."""
    for path in [*folder.glob("postings-*.segment"), *folder.glob("postings-*.tmp")]:
        path.unlink(missing_ok=True)


def _files(folder: Path, since: int) -> list[tuple[int, Path]]:
    """The files that begin at an entry, with the entry up to which each goes, the longest first."""
    named = ((_NAME.fullmatch(path.name), path) for path in folder.glob(f"postings-{since:012}-*.segment"))
    return sorted(((int(name[2]), path) for name, path in named if name), reverse=True)


def _within(path: Path, since: int, count: int) -> bool:
    name = _NAME.fullmatch(path.name)
    return name is not None and since <= int(name[1]) and int(name[2]) <= count


def _mapped(path: Path) -> mmap.mmap | bytes:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""


def _write(path: Path, data: bytearray) -> None:
    handle, name = tempfile.mkstemp(prefix="postings-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed: `_tidy` of another process leaves it alone
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _tidy(folder: Path) -> None:
    """Delete what killed processes left half written."""
    for path in folder.glob("postings-*.tmp"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
