"""The one tree of errors of the harness. In a live turn they are booked in the receipt and the call goes on without us."""

from __future__ import annotations


class HarnessError(Exception):
    """Anything the harness refuses to do."""


class HistoryError(HarnessError):
    """A history that cannot be read: which message, and what is wrong with it."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        super().__init__(f"{where}: {reason}")


class PairingError(HarnessError):
    """A request whose tool calls and results do not belong together; no provider would take it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class DispatchError(HarnessError):
    """A dispatch that is not open here: answered already, or of another session."""


class SessionFileError(HarnessError):
    """A file that holds no session the harness can run."""


class ModelCallError(HarnessError):
    """A model that a command was to call did not answer."""

    def __init__(self, model: str, error: Exception) -> None:
        first = str(error).strip().split("\n", 1)[0]
        super().__init__(f"model {model!r}: {type(error).__name__}: {first}")


class BranchError(HarnessError):
    """A branch that was to be opened as a session of its own: it is written through its root."""

    def __init__(self, session: str, root: str) -> None:
        self.session, self.root = session, root
        super().__init__(f"session {session!r} is a branch of {root!r}; open {root!r}, and it is found by its history")
