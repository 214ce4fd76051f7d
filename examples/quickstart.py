"""Quickstart: wrap the call you have. Runs offline: litellm answers from a mock.

python examples/quickstart.py
"""

import os
import tempfile

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from harness import Harness

# Small marks, so that a short talk already folds. The defaults are 45,000 and 12,000 tokens.
marks = {"high_water_tokens": 600, "low_water_tokens": 200, "hot_line_tokens": 60}

with (
    tempfile.TemporaryDirectory() as folder,
    Harness.open(f"{folder}/.mmu", session="quickstart", policy=marks) as memory,
):
    history = [{"role": "system", "content": "You are a helpful engineer."}]

    def say(text: str, answer: str) -> None:
        history.append({"role": "user", "content": text})
        reply = memory.completion(model="gpt-4o", messages=history, mock_response=answer)  # your own call, wrapped
        history.append({"role": "assistant", "content": reply.choices[0].message.content})
        receipt = memory.receipts[-1]
        back = ", ".join(f"step {piece.step_id} for {'/'.join(piece.terms)}" for piece in receipt.hydrated) or "-"
        print(f"full {receipt.full:5,}  sent {receipt.sent:5,}  folded {len(receipt.folded):2}  came back: {back}")

    say("Start the relay on port 8931, please.", "The relay listens on port 8931.")
    for tree in ("alder", "birch", "cedar", "elm", "fir", "hazel", "juniper", "larch", "maple", "oak", "pine", "rowan"):
        say(f"{tree} " * 60, f"{tree}, {tree}, {tree}. " * 9)
    say("Which port does the relay use?", "Port 8931.")
    say("Thanks!", "You are welcome.")
