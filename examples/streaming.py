"""Streaming: chunks pass through as they come; the turn ends once, whether you read to the end or break off.

python examples/streaming.py
"""

import tempfile

from harness import Harness, ScriptedClient

client = ScriptedClient(["The build takes four minutes.", "A long answer that nobody reads to its end."])
with tempfile.TemporaryDirectory() as folder, Harness.open(f"{folder}/.mmu", client=client) as memory:
    history = [{"role": "user", "content": "How long does the build take?"}]
    answer = ""
    for chunk in memory.completion(model="scripted", messages=history, stream=True):
        answer += chunk["choices"][0]["delta"].get("content") or ""
    print(answer.strip())

    history += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Tell me more."}]
    with memory.completion(model="scripted", messages=history, stream=True) as stream:
        for _chunk in stream:
            break  # the reader has seen enough
    print([receipt.outcome for receipt in memory.receipts])
