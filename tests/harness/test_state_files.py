"""State files of a session that were edited, cut or damaged: each is refused by file and field, in the library, in a live
turn and on the command line. Nothing of them reaches a prompt, and what was acknowledged stays."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from harness import Harness, ScriptedClient, fixed_clock
from harness.branches import BRANCHES_FILE
from harness.view import TURN_FILE, VIEW_FILE
from mmu.tokens import open_meter
from store import StoreFormatError, session_folder

Body = dict[str, Any]
RELAY = "The relay listens on port 7002."
ASK: Body = {"role": "user", "content": "Which port does the relay use?"}
METER = open_meter()


def opened(store: Any, session: str = "s", **options: Any) -> Harness:
    policy = {"high_water_tokens": 400, "low_water_tokens": 150}
    given = {"client": ScriptedClient([]), "clock": fixed_clock(), "meter": METER, **options}
    return Harness.open(store, session=session, policy=policy, **given)


def say(memory: Harness, history: list[Body], text: str) -> Any:
    history.append({"role": "user", "content": text})
    dispatch = memory.pre_turn_dispatch(history)
    receipt = memory.post_turn_response(dispatch, "ok")
    history.append({"role": "assistant", "content": "ok"})
    return receipt


def talk(memory: Harness, turns: int = 9) -> list[Body]:
    history: list[Body] = []
    for text in ("Hello.", RELAY, *(f"Note {number}: " + "nothing of interest " * 20 for number in range(turns))):
        say(memory, history, text)
    return history


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Body]]:
    """A store with session `s`: folded steps, a branch `s~2`, and an open turn for which step 2 was brought back."""
    root = tmp_path_factory.mktemp("made") / ".mmu"
    with opened(root) as memory:
        history = talk(memory)
        say(memory, history[:6], "Another way.")
        asking = memory.pre_turn_dispatch([*history, ASK])
        assert [one.step_id for one in asking.draft.hydrated] == [2]
    return root, history


@pytest.fixture
def store(made: tuple[Path, list[Body]], tmp_path: Path) -> Path:
    """A copy of it, to be damaged; the files of session `s` lie in the folder `of(store)`."""
    return Path(shutil.copytree(made[0], tmp_path / ".mmu"))


def of(store: Path, session: str = "s") -> Path:
    return store / session_folder(session)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- D9 D10 D11: whatever stands in a field, the error names file and field


BLOCK = {"step_id": 22, "text": "words", "tail": False}
FIELDS: dict[str, dict[str, list[Any]]] = {
    VIEW_FILE: dict.fromkeys(("folded", "lined", "cut", "withdrawn", "pins"), [{}, "1", 1, None, ["1"], [True], [[1]], [2**70]]),
    TURN_FILE: {
        **dict.fromkeys(("number", "dispatches", "left", "scanned", "hot", "beside"), ["1", None, 1.5, True, []]),
        "opening": ["22", [22], 1.5],
        "blocks": [{}, [1], [{}], [{**BLOCK, "step_id": "x"}], [{**BLOCK, "text": 7}], [{**BLOCK, "tail": 1}], [BLOCK]],
        "hydrated": ["x", [1], [{}], [{"step_id": 2}]],
        "missing": [{}, ["x"], 3],
        "order": [{}, ["x"], [None]],
        "at": ["now", None, []],
    },
    BRANCHES_FILE: {"current": [1, None, ["s"]], "forks": [{}, "s~2", [1], [{}], [{"session": 1}], [{"session": "a", "step": "6"}]]},
}  # fmt: skip


def edit(path: Path, **fields: Any) -> None:
    document = orjson.loads(path.read_bytes())
    document["state"].update(fields)
    path.write_bytes(orjson.dumps(document, default=str) if fields else b"{}")


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, fields in FIELDS.items() for field in fields])
def test_a_field_of_another_type_is_refused_by_file_and_field(store: Path, name: str, field: str) -> None:
    path = of(store) / name
    good = path.read_bytes()
    for value in FIELDS[name][field]:
        path.write_bytes(good.replace(b"{", b"{", 1))
        document = orjson.loads(good)
        document["state"][field] = 0
        path.write_bytes(orjson.dumps(document).replace(f'"{field}":0'.encode(), f'"{field}":{_json(value)}'.encode()))
        with pytest.raises(StoreFormatError) as caught:
            opened(store)
        assert str(path) in str(caught.value)
        assert field.rstrip("s") in str(caught.value), "the field is named"
        assert "remove the file" in str(caught.value), "and what to do"


def _json(value: Any) -> str:
    import json

    return json.dumps(value)
