"""Your own loop, any client: two hooks around the call you have.

python examples/own_loop.py
"""

import tempfile

from harness import Harness


def call_any_model(messages: list[dict]) -> dict:
    """Stands for your client: it gets a list of chat messages and gives a chat completion."""
    asked = messages[-1]["content"]
    recalled = "wal_level=logical" in asked
    text = "It was set to logical." if recalled else f"({len(messages)} messages read)"
    return {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": {"prompt_tokens": 0}}


marks = {"high_water_tokens": 500, "low_water_tokens": 100, "hot_line_tokens": 60}
with (
    tempfile.TemporaryDirectory() as folder,
    Harness.open(f"{folder}/.mmu", session="own-loop", policy=marks) as memory,
):
    history: list[dict] = []
    prompts = ["Let us tune the replica.", "$ psql -c 'show wal_level'\nwal_level=logical"]
    prompts += [f"{tree} " * 90 for tree in ["alder", "birch", "cedar", "elm", "fir", "hazel"]]
    for prompt in [*prompts, "What did wal_level show?", "Good, that is all."]:
        history.append({"role": "user", "content": prompt})
        dispatch = memory.pre_turn_dispatch(history)  # the list stays as it is
        reply = call_any_model(dispatch.messages)
        receipt = memory.post_turn_response(dispatch, reply)  # books, evicts
        history.append(reply["choices"][0]["message"])
        print(
            f"turn {receipt.turn:2}: {receipt.full:5,} tokens of history, {receipt.sent:5,} sent: {history[-1]['content']}"
        )
