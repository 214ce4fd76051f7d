"""A tool loop: what came back stays in place, byte for byte, while the model calls tools, and leaves with the answer.

python examples/tool_loop.py
"""

import json
import tempfile

from harness import Harness, ScriptedClient


def call(number: int, command: str) -> dict:
    """An assistant message that calls the shell."""
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def run(command: str) -> str:
    """Stands for a real tool."""
    return {"cat deploy.env": "REGION=eu-west-3\nREPLICAS=4"}.get(command, f"{command}: ok\n[exit 0]")


client = ScriptedClient(
    [
        call(1, "cat deploy.env"),
        "The region is eu-west-3 with 4 replicas.",
        *["noted"] * 8,
        call(2, "make plan"),
        call(3, "make apply"),
        "Applied to eu-west-3, as before.",
        "Bye.",
    ]
)
marks = {"high_water_tokens": 450, "low_water_tokens": 120, "hot_line_tokens": 60}
with tempfile.TemporaryDirectory() as folder, Harness.open(f"{folder}/.mmu", client=client, policy=marks) as memory:
    history: list[dict] = []
    chatter = [f"{tree} " * 60 for tree in ["alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "oak"]]
    for prompt in ["Look at deploy.env.", *chatter, "Roll out again to the same REGION.", "Thanks."]:
        history.append({"role": "user", "content": prompt})
        while True:
            reply = memory.completion(model="scripted", messages=history)["choices"][0]["message"]
            history.append(reply)
            if not reply.get("tool_calls"):
                break
            for made in reply["tool_calls"]:
                output = run(json.loads(made["function"]["arguments"])["command"])
                history.append({"role": "tool", "tool_call_id": made["id"], "content": output})
    for receipt in memory.receipts:
        back = [piece.step_id for piece in receipt.hydrated]
        place = f"turn {receipt.turn:2}.{receipt.dispatch}"
        print(f"{place}: sent {receipt.sent:4,}, in place {back}, evicted {list(receipt.evicted)}")
