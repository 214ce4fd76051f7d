"""Async: the same call awaited, and two sessions side by side, each with its own memory.

python examples/async_calls.py
"""

import asyncio
import tempfile

from harness import Harness, ScriptedClient


async def talk(store: str, session: str, prompts: list[str]) -> list[str]:
    """One session's talk."""
    with Harness.open(store, session=session, client=ScriptedClient([f"{session}: {p}" for p in prompts])) as memory:
        history: list[dict] = []
        for prompt in prompts:
            history.append({"role": "user", "content": prompt})
            reply = await memory.acompletion(model="scripted", messages=history)
            history.append(reply["choices"][0]["message"])
        return [message["content"] for message in history if message["role"] == "assistant"]


async def main() -> None:
    """Two sessions at once."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/.mmu"
        both = await asyncio.gather(talk(store, "left", ["one", "two"]), talk(store, "right", ["three"]))
        print(both)


asyncio.run(main())
