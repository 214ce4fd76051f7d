"""The seed's 500-turn scenario: eight named steps at their places, realistic turns between them, and questions at the end.

A step's id is the position of its first message, so the named steps stand exactly at 37, 91, 137, 200, 318, 342, 447, 499.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Named:
    """A step of the seed: where it stands, what was asked, its summary, and its payload (a command and its output)."""

    step_id: int
    request: str
    summary: str
    command: str
    output: str


NAMED = (
    Named(
        37,
        "Bring up the database for local work.",
        "PostgreSQL configured on Port 5433",
        "docker compose up -d postgres",
        "PostgreSQL running on port 5433",
    ),
    Named(
        91,
        "Something else listens there now, get out of its way.",
        "PostgreSQL switched to Port 5434 (conflict resolution)",
        "psql -p 5434 -U admin",
        "Conflict resolved on port 5434",
    ),
    Named(
        137,
        "The other service is gone. Put it back as it was.",
        "PostgreSQL port 5434 reverted back to Port 5433",
        "sed -i 's/5434/5433/' config.env",
        "PostgreSQL Port 5433 restored",
    ),
    Named(
        200,
        "Clean up how we check logins.",
        "Authentication middleware refactored; JWT secret rotated",
        "",
        "JWT secret updated in auth/middleware.py",
    ),
    Named(
        318,
        "Ship the tenant change.",
        "Migration V12 applied to production database",
        "python manage.py migrate V12__TenantBilling.sql",
        "Migration V12 applied",
    ),
    Named(
        342,
        "The service hangs, look at the last change.",
        "Migration V12 rolled back due to deadlocks",
        "",
        "Deadlock detected in billing table; rolled back V12",
    ),
    Named(
        447,
        "Try it again with finer locks.",
        "Migration V12 patched and re-applied successfully",
        "",
        "Patched V12__TenantBilling.sql with row-level locks; migration complete",
    ),
    Named(
        499,
        "Last look before we hand over.",
        "Final review: all services healthy, Port 5433 confirmed",
        "",
        "All health checks passing on port 5433",
    ),
)

QUESTIONS = (
    ("What port did we configure for PostgreSQL?", "Port 5433: it was moved to 5434 once and then put back."),
    ("Thanks, carry on with the release notes.", "I will start with the user-facing changes."),
    (
        "What port are we using for PostgreSQL, and which migration applied the billing table?",
        "Port 5433. V12 was rolled back after deadlocks, then patched with row-level locks and applied again.",
    ),
    ("Good. Nothing more for today.", "Everything is committed."),
)

_PLACES = (
    "search page",
    "invoice mailer",
    "upload form",
    "report builder",
    "image resizer",
    "audit trail",
    "settings view",
)
_DETAILS = (
    "an empty list looked like an error",
    "the spinner stayed after a time-out",
    "two clicks sent the form twice",
    "long names broke the layout",
    "the retry loop never gave up",
    "dates were shown in the server's zone",
    "a missing header was read as a zero",
    "the cache was never emptied",
    "the sort order changed between runs",
)
_ASKS = (
    "The {place} misbehaves: {detail}. Can you fix it?",
    "Someone reported that in the {place} {detail}. Please reproduce it first.",
    "Before we go on, check whether {detail} in the {place} too.",
    "Could you write a regression test for the {place}? Last week {detail}.",
    "ok, next: {place}. I remember that {detail}.",
)
_ANSWERS = (
    "Fixed in the {place}: {detail}, because the handler returned before its state was set. I added a test that fails "
    "without the change and ran the module's suite; all {count} tests pass.",
    "I could reproduce it. In the {place} {detail} whenever the response came late. The guard now sits in front of the "
    "update, and the log line names the request it belongs to.",
    "Done. The {place} had its own copy of the check, so {detail} there as well; both call the shared helper now. "
    "{count} lines went away.",
    "There is a test for it now. With the old code it shows that {detail}; with the new code it is green, {count} times "
    "out of {count}.",
)
_OUTPUT = (
    "============================= test session starts ==============================\n"
    "collected {count} items\n\n"
    "{module}/tests/test_{slug}.py {dots} [ 61%]\n"
    "{module}/tests/test_{slug}_edge_cases.py {dots} [100%]\n\n"
    "============================== {count} passed in 1.{count}s ==============================",
    "{module}/{slug}.py:{count}:    # {detail}\n"
    "{module}/{slug}.py:{more}:    return None\n"
    "{module}/{slug}_form.py:{count}:from .{slug} import handle, render\n"
    "{module}/{slug}_form.py:{more}:    handle(request, dry_run=False)\n"
    "{module}/views.py:{count}:from .{slug} import handle\n"
    "{module}/urls.py:{count}:    path('{slug}/', handle, name='{slug}'),",
    " {module}/{slug}.py                  | {count} +++++++++----\n"
    " {module}/{slug}_form.py             |  6 +++---\n"
    " {module}/tests/test_{slug}.py       | 14 ++++++++++++++\n"
    " 3 files changed, {more} insertions(+), 9 deletions(-)",
)
_COMMANDS = ("pytest -q tests/test_{slug}.py", "grep -rn {slug} {module}/", "git diff --stat HEAD~1 -- {module}")


def messages() -> list[dict[str, Any]]:
    """The whole conversation as OpenAI chat messages: a system message, 500 positions, and the questions with answers."""
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful engineer on a small web product."}
    ]
    for named in NAMED:
        _fill(history, named.step_id - 1)
        history.append({"role": "user", "content": named.request})
        history.extend(_exchange(named))
    for question, answer in QUESTIONS:
        history += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return history


def _exchange(named: Named) -> Iterator[dict[str, Any]]:
    if not named.command:
        yield {"role": "assistant", "content": f"{named.summary}\n{named.output}"}
        return
    call_id = f"call_{named.step_id}"
    yield _call(call_id, named.command, named.summary)
    yield {"role": "tool", "tool_call_id": call_id, "content": named.output}
    yield {"role": "assistant", "content": "Done."}


def _call(call_id: str, command: str, text: str | None = None) -> dict[str, Any]:
    arguments = orjson.dumps({"command": command}).decode()
    function = {"name": "bash", "arguments": arguments}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def _fill(history: list[dict[str, Any]], until: int) -> None:
    """Realistic turns up to position `until`: a request and an answer (2 messages), with one call (4) or two at once (5)."""
    while (gap := until - (len(history) - 1)) > 0:
        turn = len(history) * 7 // 3
        sizes = [
            size for size in ((4, 2, 5), (2, 5, 4), (5, 4, 2))[turn % 3] if gap - size not in (1, 3) and size <= gap
        ]
        history.extend(_filler(turn, sizes[0] - 2 if sizes[0] > 2 else 0))


def _filler(turn: int, tool_messages: int) -> Iterator[dict[str, Any]]:
    place, detail = _PLACES[turn % len(_PLACES)], _DETAILS[turn % len(_DETAILS)]
    slug = place.replace(" ", "_")
    words = {
        "place": place,
        "detail": detail,
        "slug": slug,
        "module": ("web", "jobs", "core")[turn % 3],
        "count": 10 + turn % 83,
        "more": 104 + turn % 83,
        "dots": "." * (10 + turn % 30),
    }
    yield {"role": "user", "content": _ASKS[turn % len(_ASKS)].format(**words)}
    if tool_messages:
        calls = tool_messages - 1
        numbers = [turn + n for n in range(calls)]
        first = _call("", "")
        first["tool_calls"] = [
            _call(f"call_{turn}_{n}", _COMMANDS[n % len(_COMMANDS)].format(**words))["tool_calls"][0] for n in numbers
        ]
        yield {**first, "content": None}
        for n in numbers:
            output = _OUTPUT[n % len(_OUTPUT)].format(**words)
            yield {"role": "tool", "tool_call_id": f"call_{turn}_{n}", "content": output}
    yield {"role": "assistant", "content": _ANSWERS[turn % len(_ANSWERS)].format(**words)}
