"""Old turns leave the prompt, come back by themselves on the one turn that needs them, and leave again.

from harness import Harness

memory = Harness.open(".mmu", session="refactor-42")
reply = memory.completion(model="gpt-4o", messages=history)
"""

from harness.clients import ScriptedClient
from harness.clock import Clock, fixed_clock
from harness.dispatch import Dispatch
from harness.errors import DispatchError, HarnessError, HistoryError, PairingError, SessionFileError
from harness.harness import Harness, Turn
from harness.receipt import Dropped, Hydrated, Receipt, Usage
from mmu.policy import HydrationPolicy

__all__ = [
    "Clock",
    "Dispatch",
    "DispatchError",
    "Dropped",
    "Harness",
    "HarnessError",
    "HistoryError",
    "Hydrated",
    "HydrationPolicy",
    "PairingError",
    "Receipt",
    "ScriptedClient",
    "SessionFileError",
    "Turn",
    "Usage",
    "fixed_clock",
]
