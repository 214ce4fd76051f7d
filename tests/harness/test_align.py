"""Which steps of a history are known: a table of what clients do to a history, and two properties."""

from __future__ import annotations

from random import Random

import pytest

from harness.align import Known, Shown, align

# A word is a branch of steps of one message each; a letter is a step's key, its place is its id.
CASES = {
    "nothing yet": ("", "abc", (0, 1, 2), (0, 1, 2), ()),
    "the same": ("abc", "abc", (0, 1, 2), (), ()),
    "grown": ("abc", "abcde", (0, 1, 2, 3, 4), (3, 4), ()),
    "cleared": ("abc", "", (), (), (0, 1, 2)),
    "trimmed in front": ("abcd", "cde", (2, 3, 4), (2,), (0, 1)),
    "trimmed in the middle": ("abcdef", "abef", (0, 1, 4, 5), (), (2, 3)),
    "trimmed at the end": ("abcd", "ab", (0, 1), (), (2, 3)),
    "a summary in front": ("abcd", "Scde", (4, 2, 3, 5), (0, 3), (0, 1)),
    "one replaced": ("abcd", "abXd", (0, 1, 4, 3), (2,), (2,)),
    "one put between": ("abcd", "abXcd", (0, 1, 4, 2, 3), (2,), ()),
    "two exchanged": ("abcd", "acbd", (0, 2, 1, 3), (), ()),
    "turned round": ("abc", "cba", (2, 1, 0), (), ()),
    "all new": ("abc", "xyz", (3, 4, 5), (0, 1, 2), (0, 1, 2)),
    "one key throughout": ("aaa", "aaaa", (0, 1, 2, 3), (3,), ()),
    "one of equal ones gone, in front": ("akbkc", "kbkc", (1, 2, 3, 4), (), (0,)),
    "one of equal ones gone, neighbours tell": ("akbkc", "akc", (0, 1, 4), (), (2, 3)),
    "equal ones, the newest kept": ("kakbkc", "kc", (4, 5), (), (0, 1, 2, 3)),
    "equal ones behind a summary": ("kakbkc", "Skbkc", (6, 2, 3, 4, 5), (0,), (0, 1)),
    "equal ones shown once more": ("kak", "kakk", (0, 1, 2, 3), (3,), ()),
}


@pytest.mark.parametrize("case", CASES)
def test_known_steps_keep_their_ids_and_new_ones_take_the_next(case: str) -> None:
    known, shown, ids, new, missing = CASES[case]
    found = align([Known(i, key, 1) for i, key in enumerate(known)], [Shown(key, 1) for key in shown])
    assert (found.ids, found.new, found.missing) == (ids, new, missing)


def test_a_new_id_is_the_position_of_the_steps_first_message() -> None:
    shown = [Shown("a", 1), Shown("b", 3), Shown("c", 1), Shown("d", 2)]
    assert align([], shown).ids == (0, 1, 4, 5)
    assert align([Known(0, "a", 1), Known(1, "b", 3)], shown).ids == (0, 1, 4, 5)


def test_new_ids_begin_behind_what_was_folded_by_hand() -> None:
    assert align([Known(0, "a", 1)], [Shown("a", 1), Shown("b", 1)], next_id=501).ids == (0, 501)


@pytest.mark.parametrize("seed", range(300))
def test_whatever_a_client_does_each_id_is_given_once_and_names_the_same_key(seed: int) -> None:
    random = Random(seed)
    keys = random.choice(("ab", "abcdef", "abcdefghijklmnopqrstuvwxyz"))
    known = [Known(3 * i, random.choice(keys), 3) for i in range(random.randrange(15))]
    kept = [k.key for k in known if random.random() < 0.7]
    random.shuffle(kept) if random.random() < 0.3 else None
    for _ in range(random.randrange(4)):
        kept.insert(random.randrange(len(kept) + 1), random.choice(keys))
    found = align(known, [Shown(key, 3) for key in kept])
    by_id = {k.step_id: k.key for k in known}
    assert len(set(found.ids)) == len(kept)
    assert all(by_id.get(i, key) == key for i, key in zip(found.ids, kept, strict=True))
    assert {position for position, i in enumerate(found.ids) if i not in by_id} == set(found.new)
    assert set(found.missing) == set(by_id) - set(found.ids)
    # A known step is left over only if every shown one of its key has found another twin.
    assert not {by_id[i] for i in found.missing} & {kept[position] for position in found.new}


def test_what_only_grew_is_known_whole_even_where_every_step_is_the_same() -> None:
    count = 20_000
    known = [Known(i, "same", 1) for i in range(count)]
    found = align(known, [Shown("same", 1)] * (count + 1))
    assert found.ids == tuple(range(count + 1))
