"""The IPCF-1.1 conformance suite: 16 tests for 13 requirements, runnable by pytest, by unittest and by `mmu conformance`.

`seed` in the comments is the conformance document of IPCF-1.1; the names of the tests are its section 5.
"""

from __future__ import annotations

import tempfile
import unittest
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from harness.clients import ScriptedClient
from harness.clock import fixed_clock
from harness.harness import Harness
from harness.scenario import NAMED
from mmu.policy import HydrationPolicy
from mmu.step import Step, Text
from mmu.tokens import Meter, open_meter
from mmu.unit import MMU
from store import (
    BrokenReferenceError,
    ColdNode,
    FileStore,
    IndexEntry,
    IntegrityCheckError,
    NodeNotFoundError,
    OrphanedNodeError,
    PathContainmentError,
    encode_text,
    sha256_hex,
)
from store.jcs import canonical_sha256
from store.log import frame

SESSION = "conformance"
TWO_INTENTS = "What port are we using for PostgreSQL, and which migration applied the billing table?"
_TABLE = "sipariş_tablosu indekslendi\n$ psql -c 'CREATE INDEX ON sipariş_tablosu (müşteri_no)'\nCREATE INDEX"


def payload_of(step_id: int) -> str:
    """The payload of a named step of the seed's scenario."""
    named = next(named for named in NAMED if named.step_id == step_id)
    return f"$ {named.command}\n{named.output}" if named.command else named.output


class IPCFSuite(unittest.TestCase):
    """The 16 tests. Each works on fresh stores in a temporary folder, with a clock that stands still."""

    meter: Meter = open_meter()
    redact = False

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="mmu-conformance-")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self._names = count()

    # -- engines

    def open_mmu(
        self, root: Path | None = None, policy: HydrationPolicy | None = None, time: float = 1_750_000_000.0
    ) -> MMU:
        """An engine on a store; a new one unless `root` names it."""
        store = FileStore(root or self.root / f"store-{next(self._names)}", SESSION)
        self.addCleanup(store.close)
        return MMU(store, policy or HydrationPolicy(), self.meter, fixed_clock(time).now)

    def fold(self, mmu: MMU, text: str, step_id: int, **about: Any) -> None:
        """Archive a text, without its secrets if this suite is run so."""
        mmu.fold(text, step_id, without_secrets=self.redact, **about)

    def folded_scenario(self, mmu: MMU) -> MMU:
        """The eight named steps of the seed, folded under the ids that the history gives them."""
        for named in NAMED:
            self.fold(mmu, payload_of(named.step_id), named.step_id, summary=named.summary)
        return mmu

    def open_harness(self, replies: list[str], root: Path | None = None, **policy: int) -> Harness:
        """A harness with a scripted model; no tool is offered to it."""
        marks = {"high_water_tokens": 400, "low_water_tokens": 100, **policy}
        harness = Harness.open(
            root or self.root / f"store-{next(self._names)}",
            session=SESSION,
            policy=marks,
            client=ScriptedClient(replies),
            clock=fixed_clock(),
            meter=self.meter,
            on_fault="raise",
            redact=self.redact,
        )
        self.addCleanup(harness.store.close)
        return harness

    def requests(self, harness: Harness) -> list[list[dict[str, Any]]]:
        """What the scripted model was sent."""
        assert isinstance(harness.client, ScriptedClient)
        return harness.client.requests

    def node_path(self, mmu: MMU, step_id: int) -> Path:
        """The file of a step, with everything filed before a test touches it."""
        assert isinstance(mmu.store, FileStore)
        mmu.store.close()
        return mmu.store.folder / mmu.store.entries[step_id].file

    # -- storage

    def test_conf_01_lossless_storage(self) -> None:
        """Every byte of a payload is on the disk, whatever it is made of."""
        payloads = (
            "",
            "plain\n",
            "CRLF\r\n, tab\t, NUL \x00 and trailing blanks  \n\n",
            "Iğdır'ın şoförü 🎉 前watchdog后 e\u0301",
            "half a surrogate: \ud83d",
            "".join(f"row {number:06d} | value {number * 7919}\n" for number in range(12_000)),
        )
        mmu = self.open_mmu()
        for step_id, payload in enumerate(payloads):
            self.fold(mmu, payload, step_id)
        for step_id, payload in enumerate(payloads):
            document = orjson.loads(self.node_path(mmu, step_id).read_bytes())
            if "payload" in document:
                stored = document["payload"].encode()
            else:
                stored = ColdNode.from_bytes(self.node_path(mmu, step_id).read_bytes()).payload
            self.assertEqual(len(stored), len(encode_text(payload)), f"payload {step_id}: byte count")
            self.assertEqual(stored, encode_text(payload), f"payload {step_id}: content")

    def test_conf_02_payload_round_trip(self) -> None:
        """The payload hash of the source is that of the stored and of the hydrated payload, message bytes included."""
        messages = b'[{"role":"user","content":"z first","a":1.0,"n":1e2},{"role":"assistant","content":null}]'
        mmu = self.open_mmu()
        mmu.archive([Step(4, (Text("user", "z first"),), messages, "key", 2)])
        self.fold(mmu, payload_of(137), 137)
        for step_id, source in ((4, messages), (137, payload_of(137).encode())):
            stored = ColdNode.from_bytes(self.node_path(mmu, step_id).read_bytes())
            hydrated = self.open_mmu(self.folder_of(mmu)).hydrate(step_id).node
            self.assertEqual(sha256_hex(source), mmu.store.entries[step_id].payload_sha256)
            self.assertEqual(sha256_hex(source), sha256_hex(stored.payload))
            self.assertEqual(sha256_hex(source), sha256_hex(hydrated.payload))

    def folder_of(self, mmu: MMU) -> Path:
        """The store folder that an engine works in."""
        assert isinstance(mmu.store, FileStore)
        return mmu.store.folder.parent

    def test_conf_03_deterministic_addressing(self) -> None:
        """One history gives one index, bit for bit, whether it was seen turn by turn or at once; ids are its positions."""
        history: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
        for number in range(6):
            call = {
                "id": f"c{number}",
                "type": "function",
                "function": {"name": "bash", "arguments": '{"command":"ls"}'},
            }
            history.append({"role": "user", "content": f"Task {number}: look into module_{number * 11}"})
            history.append({"role": "assistant", "content": None, "tool_calls": [call]})
            history.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"module_{number * 11}.py"})
            history.append({"role": "assistant", "content": f"Task {number} is done, see release_{number}"})
        by_turn, at_once = self.open_harness([]), self.open_harness([])
        for end in range(2, len(history) + 1):
            if history[end - 1]["role"] in ("user", "tool"):
                by_turn.post_turn_response(by_turn.pre_turn_dispatch(history[:end]), "ok")
        for harness in (by_turn, at_once):
            harness.post_turn_response(
                harness.pre_turn_dispatch([*history, {"role": "user", "content": "And now?"}]), "ok"
            )
        self.assertEqual(by_turn.store.export_index(), at_once.store.export_index())
        positions = [number for number, message in enumerate(history[1:]) if message["role"] != "tool"]
        self.assertEqual([*positions, len(history) - 1], sorted(at_once.store.entries))

    # -- addressing and retrieval

    def test_conf_04_temporal_disambiguation(self) -> None:
        """All states of an evolving entity are listed, newest first, with the latest clearly marked."""
        found = self.folded_scenario(self.open_mmu()).recall("PostgreSQL port")
        primary = [(c.step_id, c.value, c.status) for c in found if c.status != "related"]
        self.assertEqual(
            primary, [(137, "5433", "latest_chronological"), (91, "5434", "superseded"), (37, "5433", "historical")]
        )
        self.assertEqual([c.step_id for c in found if c.status == "related"], [499])
        self.assertTrue(all(c.timestamp for c in found))

    def test_conf_05_exact_verbatim_retrieval(self) -> None:
        """What is hydrated is what was written, character for character, read from the disk."""
        source = "retry_limit  =  7\n\ttimeout_ms=4500   # trailing blanks:   \n\n  indented \u00a0 line\n"
        mmu = self.open_mmu()
        self.fold(mmu, source, 12, summary="limits")
        again = self.open_mmu(self.folder_of(mmu))
        self.assertEqual(again.hydrate(12).text, source)
        self.assertIn(source, again.scan("Which retry_limit did we set?").block)

    def test_conf_06_bounded_rehydration_cap(self) -> None:
        """One step brings back at most the policy's tokens; what is cut is said."""
        long = "".join(f"line {number}: queue depth {number * 31}\n" for number in range(2_000))
        mmu = self.open_mmu()
        self.fold(mmu, long, 8, summary="queue log")
        self.fold(mmu, "short note", 9)
        cap = mmu.policy.max_rehydration_tokens_per_call
        found = mmu.hydrate(8)
        self.assertLessEqual(self.meter.count(found.text), cap)
        self.assertGreater(found.whole_tokens, cap)
        self.assertIn("truncated", found.text)
        self.assertTrue(long.startswith(found.text.partition("\n[truncated")[0]))
        self.assertEqual(mmu.hydrate(9).text, "short note")
        self.assertLessEqual(self.meter.count(mmu.hydrate(8, 50).text), 50)
        (piece,) = mmu.scan("queue depth?").pieces
        self.assertLessEqual(self.meter.count(piece.text), cap)

    def test_conf_06_turn_budget(self) -> None:
        """A step over the turn's budget leaves a gap, never an older state in its place (intent ownership)."""
        mmu = self.open_mmu(policy=HydrationPolicy(max_rehydration_tokens_per_turn=100))
        for named in NAMED:
            padding = "\n" + "unrelated words " * 150 if named.step_id == 137 else ""
            self.fold(mmu, payload_of(named.step_id) + padding, named.step_id, summary=named.summary)
        found = mmu.scan("Which port did PostgreSQL get, and what became of the billing table migration?")
        self.assertEqual([piece.step_id for piece in found.pieces], [342])
        self.assertEqual([pick.step_id for pick in found.dropped], [137])
        self.assertLessEqual(found.tokens, 100)

    # -- the turn

    def test_conf_07_enforced_eviction_cycle(self) -> None:
        """Rapid recalls do not add up: each turn S is S + new - folded + hot lines, recounted from the bytes sent."""
        harness = self.open_harness(["noted"] * 40, high_water_tokens=300, low_water_tokens=120)
        history: list[dict[str, Any]] = [{"role": "user", "content": "We start today."}]
        colours = ("amber", "cobalt", "crimson", "emerald", "fuchsia", "indigo")
        for colour in colours:
            note = f"The {colour} queue keeps its spool below /var/spool/{colour}, drained nightly. " * 3
            history += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": note}]
            harness.completion(model="scripted", messages=history)
        sizes = []
        for colour in colours[:4] * 2:
            history += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": f"Where is {colour}?"}]
            last = harness.receipts[-1].baseline
            harness.completion(model="scripted", messages=history)
            receipt = harness.receipts[-1]
            sent = self.requests(harness)[-1]
            with_block = 3 + sum(4 + self.meter.count(message["content"]) for message in sent)
            self.assertEqual(receipt.sent, with_block)
            self.assertEqual(
                receipt.baseline,
                last + receipt.new - receipt.folded_tokens + receipt.hot_change,
                "S + new - folded + hot",
            )
            if receipt.hydrated:
                self.assertEqual(set(receipt.evicted), {piece.step_id for piece in receipt.hydrated})
                sizes.append(receipt.injected)
        self.assertGreaterEqual(len(sizes), 4, "steps came back on several turns in a row")
        self.assertLess(max(sizes), 2 * min(sizes), "blocks do not accumulate")

    def test_conf_08_dual_projection_isolation(self) -> None:
        """A developer who reads the whole archive does not change the next request by one byte."""
        sent = []
        for looks in (False, True):
            harness = self.open_harness(["ok"] * 20)
            history: list[dict[str, Any]] = []
            for number in range(8):
                note = f"Worker pool_{number} was set to {number * 37 + 100} threads. " * 5
                history.append({"role": "user", "content": note})
                harness.completion(model="scripted", messages=history)
                history.append({"role": "assistant", "content": "ok"})
            if looks:
                for step_id in list(harness.store.entries):
                    harness.mmu.hydrate(step_id)
                harness.mmu.recall("pool_2 threads")
                harness.mmu.scan("Everything about pool_3, pool_4 and threads")
                harness.store.validate()
                harness.store.export_index()
                self.assertTrue(harness.receipts)
            history.append({"role": "user", "content": "How many threads has pool_2?"})
            harness.completion(model="scripted", messages=history)
            sent.append((self.requests(harness)[-1], harness.receipts[-1].sent))
        self.assertEqual(orjson.dumps(sent[0][0]), orjson.dumps(sent[1][0]))
        self.assertEqual(sent[0][1], sent[1][1])
        self.assertIn("pool_2 was set to 174 threads", sent[0][0][-1]["content"])

    # -- faults

    def test_conf_09_tamper_detection(self) -> None:
        """A changed node is found and never hydrated, even if the editor recomputes the hash inside the file."""
        mmu = self.folded_scenario(self.open_mmu())
        path = self.node_path(mmu, 137)
        genuine = path.read_bytes()
        edited = genuine.replace(b"Port 5433 restored", b"Port 6666 restored")
        document = orjson.loads(edited)
        del document["artifact_sha256"]
        document["artifact_sha256"] = canonical_sha256(document)
        rehashed = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        for name, bytes_ in (("edited", edited), ("edited and rehashed", rehashed)):
            path.write_bytes(bytes_)
            with self.assertRaises(IntegrityCheckError, msg=name):
                mmu.hydrate(137)
            found = mmu.scan("What port did we configure for PostgreSQL?")
            self.assertNotIn("6666", found.block)
            self.assertEqual([type(fault) for fault in found.faults], [IntegrityCheckError])
        path.write_bytes(genuine)
        self.assertEqual(mmu.hydrate(137).node.projection_hash(), mmu.store.entries[137].projection_sha256)

    def test_conf_10_explicit_failure_mode(self) -> None:
        """A step that never was is an error, and nothing takes its place."""
        mmu = self.folded_scenario(self.open_mmu())
        for step_id in (0, 138, 10**8):
            with self.assertRaises(NodeNotFoundError):
                mmu.hydrate(step_id)
        self.assertEqual(mmu.scan("Show me step 138 again").block, "")
        self.assertEqual(mmu.recall("kubernetes ingress"), ())

    def test_conf_11_deterministic_replay(self) -> None:
        """Two runs at different times give the same projections; another policy or algorithm version does not."""
        first = self.folded_scenario(self.open_mmu(time=1_750_000_000.0))
        second = self.folded_scenario(self.open_mmu(time=1_760_000_000.0))
        for step_id, entry in first.store.entries.items():
            other = second.store.entries[step_id]
            self.assertEqual(entry.projection_sha256, other.projection_sha256)
            self.assertNotEqual(entry.artifact_sha256, other.artifact_sha256)  # the time of archiving: not a failure
        node = first.store.get(137)
        self.assertEqual(set(node.projection()), _PROJECTION_FIELDS)
        newer = replace(node, projection_version="mmu-projection-2")
        self.assertNotEqual(newer.projection_hash(), node.projection_hash())
        other_policy = self.folded_scenario(self.open_mmu(policy=HydrationPolicy(low_water_tokens=1)))
        self.assertNotEqual(other_policy.store.entries[137].projection_sha256, node.projection_sha256)

    def test_conf_12_inconsistent_state_detection(self) -> None:
        """Orphan, broken reference and partial write are found when the store is opened or audited, and are refused."""
        root = self.root / "broken"
        mmu = self.folded_scenario(self.open_mmu(root))
        foreign = self.open_mmu()
        self.fold(foreign, "left behind by a crash", 42)
        self.node_path(mmu, 42 if 42 in mmu.store.entries else 37).with_name("step_000042.json").write_bytes(
            self.node_path(foreign, 42).read_bytes()
        )
        self.node_path(mmu, 91).unlink()
        partial = self.node_path(mmu, 200)
        partial.write_bytes(partial.read_bytes()[:-40])
        again = self.open_mmu(root)
        expected = {42: OrphanedNodeError, 91: BrokenReferenceError, 200: IntegrityCheckError}
        for step_id, error in expected.items():
            with self.assertRaises(error):
                again.hydrate(step_id)
        self.assertIn("step_000091.json", str(self._raised(again, 91)))
        self.assertEqual([type(fault) for fault in again.store.faults], [OrphanedNodeError])
        self.assertEqual({f.step_id: type(f) for f in again.store.validate().faults}, expected)
        found = again.scan("middleware, conflict resolution, left behind by a crash")
        self.assertEqual({piece.step_id for piece in found.pieces} & set(expected), set())
        self.assertFalse(self.node_path(again, 91).exists(), "nothing is repaired in silence")

    def _raised(self, mmu: MMU, step_id: int) -> Exception | None:
        try:
            mmu.hydrate(step_id)
        except Exception as error:  # noqa: BLE001 - the error is the result
            return error
        return None

    def test_conf_12_path_containment(self) -> None:
        """An entry cannot make the engine read another file, nor can a link in the place of a node."""
        root = self.root / "contained"
        mmu = self.folded_scenario(self.open_mmu(root))
        outside = self.root / "outside.json"
        outside.write_bytes(self.node_path(mmu, 137).read_bytes())
        assert isinstance(mmu.store, FileStore)
        node = mmu.store.get(137)
        entry = replace(IndexEntry.of(node, "cold_nodes/step_000137.json"), file="../../outside.json")
        log = mmu.store.folder / "log.0"
        with log.open("ab") as file:
            place = {"seq": mmu.store.version.count, "salt": "", "link": "0" * 64}
            file.write(frame({"record": "archive", "entry": entry.document(), "node": node.document(), **place}))
        again = self.open_mmu(root)
        with self.assertRaises(PathContainmentError):
            again.hydrate(137)
        linked = self.node_path(mmu, 91)
        linked.unlink()
        linked.symlink_to(outside)
        with self.assertRaises(PathContainmentError):
            again.hydrate(91)

    # -- the passive scan

    def test_conf_13_multi_intent(self) -> None:
        """A prompt with two intents brings back the newest state of each, and nothing outdated."""
        found = self.folded_scenario(self.open_mmu()).scan(TWO_INTENTS)
        self.assertEqual([piece.step_id for piece in found.pieces], [342, 137, 447])
        self.assertEqual(found.dropped, ())

    def test_conf_13_passive_mmu_unicode(self) -> None:
        """An identifier in the prompt pages its step in, verified, without any tool; on the next turn it is out again."""
        harness = self.open_harness(["tamam"] * 12, high_water_tokens=200, low_water_tokens=80)
        history: list[dict[str, Any]] = [{"role": "user", "content": "Veritabanı üzerinde çalışıyoruz."}]
        for text in (_TABLE, *(f"Ara not {number}: " + "bugün hava güzel " * 20 for number in range(5))):
            history += [{"role": "assistant", "content": "tamam"}, {"role": "user", "content": text}]
            harness.completion(model="scripted", messages=history)
        self.assertIn(2, harness.folded)
        question = "SİPARİŞ_TABLOSU neydi?"
        history += [{"role": "assistant", "content": "tamam"}, {"role": "user", "content": question}]
        harness.completion(model="scripted", messages=history)
        receipt = harness.receipts[-1]
        self.assertEqual([piece.step_id for piece in receipt.hydrated], [2])
        self.assertEqual(receipt.hydrated[0].artifact_sha256, harness.store.get(2).artifact_sha256)
        prompt = self.requests(harness)[-1][-1]["content"]
        self.assertIn(_TABLE, prompt)
        self.assertTrue(prompt.endswith(question))
        history += [{"role": "assistant", "content": "tamam"}, {"role": "user", "content": "Peki."}]
        harness.completion(model="scripted", messages=history)
        after = harness.receipts[-1]
        self.assertEqual(after.sent, after.baseline)
        self.assertEqual(after.baseline, receipt.baseline + after.new - after.folded_tokens + after.hot_change)


_PROJECTION_FIELDS = {
    "projection_version",
    "step_id",
    "normalized_content",
    "identifiers",
    "files",
    "commands",
    "errors",
    "folding_policy_hash",
}

TITLES = {
    "CONF-01": "Lossless cold storage",
    "CONF-02": "Payload round trip",
    "CONF-03": "Deterministic addressing",
    "CONF-04": "Temporal disambiguation",
    "CONF-05": "Exact verbatim retrieval",
    "CONF-06": "Bounded rehydration",
    "CONF-07": "Enforced eviction",
    "CONF-08": "Dual-projection isolation",
    "CONF-09": "Tamper detection",
    "CONF-10": "Explicit failure",
    "CONF-11": "Deterministic replay",
    "CONF-12": "Inconsistent state detection",
    "CONF-13": "Passive recall interception",
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """A row of the matrix. `detail` names the tests, or the first line of what failed."""

    id: str
    title: str
    status: str
    detail: str


class RedactedSuite(IPCFSuite):
    """The same with secrets taken out before archiving."""

    redact = True


def check() -> tuple[Requirement, ...]:
    """Run the suite, without redaction and with it, and give the matrix of the 13 requirements."""
    names = unittest.defaultTestLoader.getTestCaseNames(IPCFSuite)
    failures = {name: reason for name in names if (reason := _failure(name))}
    rows = []
    for id_, title in TITLES.items():
        mine = [name for name in names if name.startswith(f"test_conf_{id_[-2:]}_")]
        reasons = [failures[name] for name in mine if name in failures]
        rows.append(Requirement(id_, title, "fail" if reasons or not mine else "pass", "; ".join(reasons or mine)))
    return tuple(rows)


def _failure(name: str) -> str:
    """Why a test fails, in one line; empty if it passes."""
    for suite in (IPCFSuite, RedactedSuite):
        result = unittest.TestResult()
        suite(name).run(result)
        for _, problem in [*result.failures, *result.errors]:
            return f"{name}{' with redaction' * suite.redact}: {problem.strip().splitlines()[-1]}"
    return ""
