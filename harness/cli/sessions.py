"""Commands that drive whole sessions: run and demo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from harness import demo as demonstration
from harness.cli.options import (
    STORE,
    JsonOption,
    PolicyOption,
    RedactOption,
    StoreOption,
    console,
    print_json,
    progress_bar,
    read_policy,
)
from harness.cli.tables import ledger_table, totals_lines
from harness.clients import LiteLLM
from harness.clock import Clock, fixed_clock, system_clock
from harness.errors import HarnessError, ModelCallError
from harness.harness import Harness, Mode
from harness.receipt import Receipt
from harness.recorded import load
from harness.report import totals
from harness.runner import Ran, run
from store import session_folder


def _fresh_session(store: Path, name: str) -> str:
    """The name, or the first of `name-2`, `name-3`, ... that is not in the store yet: a run never mixes with an older one."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(candidate for candidate in names if not (store / session_folder(candidate)).exists())


def _with_progress(ran: Iterable[Ran], what: str, total: int) -> Iterator[Receipt]:
    with progress_bar(what) as progress:
        for number, one in enumerate(ran, 1):
            progress(number, total)
            yield one.receipt


def run_command(
    file: Annotated[Path, typer.Argument(help="Chat messages, an object with `messages`, JSON lines, or exchanges.")],
    model: Annotated[
        str, typer.Option(help="`mock` answers as recorded; any other is called through litellm.")
    ] = "mock",
    session: Annotated[str | None, typer.Option(help="Name of the new session; the file's name if missing.")] = None,
    observe: Annotated[bool, typer.Option("--observe", help="Measure only: send the messages unchanged.")] = False,
    store: StoreOption = STORE,
    policy: PolicyOption = None,
    redact: RedactOption = True,
    json: JsonOption = False,
) -> None:
    """Drive a recorded message list through the harness, call by call, and print the ledger."""
    documents = []
    for recorded in load(file):
        name = _fresh_session(store, session or recorded.name)
        client = None if model == "mock" else LiteLLM()
        mode: Mode = "observe" if observe else "active"
        with Harness.open(store, session=name, policy=read_policy(policy), mode=mode, redact=redact) as memory:
            ran = run(memory, recorded, client=client, model=model)
            try:
                receipts = list(_with_progress(ran, recorded.name, len(recorded.calls)))
            except HarnessError:
                raise
            except Exception as error:  # whatever the model's client raises
                if client is None:
                    raise
                raise ModelCallError(model, error) from error
        documents.append(
            {"session": name, "receipts": [r.document() for r in receipts], "totals": totals(receipts).document()}
        )
        if not json:
            console.print(f"session {name}")
            if recorded.passed_over:
                console.print(f"{recorded.passed_over} exchanges with another service were passed over")
            console.print(ledger_table(receipts))
            console.print(*totals_lines(totals(receipts)), sep="\n")
    if json:
        print_json(documents[0] if len(documents) == 1 else {"sessions": documents})


def demo(store: StoreOption = STORE, json: JsonOption = False) -> None:
    """Run the two demonstration sessions offline and print what each turn cost."""
    documents = []
    still = Clock(
        fixed_clock().wall, system_clock().timer
    )  # with one time for all steps, every run sends the same bytes
    for story in demonstration.stories():
        name = _fresh_session(store, f"demo-{story.recorded.name}")
        with Harness.open(store, session=name, policy=story.policy, clock=still, redact=True) as memory:
            receipts = list(_with_progress(run(memory, story.recorded), name, len(story.recorded.calls)))
        documents.append({"session": name, **demonstration.findings(story, receipts)})
        if not json:
            _tell(name, story, receipts)
    if json:
        print_json({"store": str(store), "sessions": documents})
    else:
        first = documents[-1]["session"]
        console.print("\nIn short:", style="bold")
        for document in documents:
            sent, full, share = (document["totals"][name] for name in ("sent_sum", "full_sum", "share"))
            console.print(f"  {document['session']}: {sent:,} tokens sent instead of {full:,} ({100 * share:.0f} %)")
        console.print("\nWhat to look at next:", style="bold")
        console.print(f"  mmu report {first} --store {store}        the whole ledger of the last session")
        console.print(f"  mmu explain {first} {documents[-1]['example_turn']} --store {store}     why a step came back")
        console.print(f"  mmu recall 'port' --session {first} --store {store}")
        console.print(f"  mmu validate --session {first} --store {store}")
        console.print("  mmu conformance                   the 13 requirements of IPCF-1.1, checked here")


def _tell(name: str, story: demonstration.Story, receipts: list[Receipt]) -> None:
    console.print(f"\n{story.title}", style="bold")
    console.print(story.about)
    high, low = story.policy.high_water_tokens, story.policy.low_water_tokens
    console.print(f"session {name}, high mark {high:,}, low mark {low:,} tokens\n")
    console.print(ledger_table(receipts, probes=demonstration.prompts(story)))
    console.print(*totals_lines(totals(receipts)), sep="\n")
    for line in demonstration.verdict(story, receipts):
        console.print(line, markup=False)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("run")(run_command)
    app.command()(demo)
