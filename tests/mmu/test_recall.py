"""Tiers of a query, and the place of a step in time."""

from __future__ import annotations

from mmu.postings import Index
from mmu.recall import Chronology, chronology, tiers


def archive(**steps: str) -> Index:
    """Steps named s37="postgresql port", each with its terms."""
    made = Index()
    for name, terms in steps.items():
        made.add(int(name[1:]), terms.split(), 10)
    return made


def listed(query: str, postings: Index) -> list[tuple[int, str, int]]:
    return [(rank.step_id, rank.status, rank.coverage) for rank in tiers(query.split(), postings)]


def test_three_states_are_the_latest_the_superseded_and_the_historical() -> None:
    postings = archive(s91="postgresql port", s137="postgresql port", s37="postgresql port")
    assert listed("postgresql port", postings) == [
        (137, "latest_chronological", 2),
        (91, "superseded", 2),
        (37, "historical", 2),
    ]


def test_of_two_states_the_older_is_historical_and_one_alone_is_the_latest() -> None:
    assert [s for _, s, _ in listed("port", archive(s1="port", s2="port"))] == ["latest_chronological", "historical"]
    assert listed("port", archive(s5="port")) == [(5, "latest_chronological", 1)]


def test_a_partial_match_is_related_however_new_it_is() -> None:
    postings = archive(s37="postgresql port", s499="port", s500="postgresql", s2="port")
    assert listed("postgresql port", postings) == [
        (37, "latest_chronological", 2),
        (500, "related", 1),
        (499, "related", 1),
        (2, "related", 1),
    ]


def test_terms_match_as_wholes_only() -> None:
    assert listed("res port postgresql", archive(s1="restored report")) == []


def test_a_query_without_a_known_word_lists_nothing() -> None:
    assert tiers([], archive(s1="port")) == ()
    assert tiers(["kubernetes"], archive(s1="port")) == ()


def test_a_step_is_the_latest_only_if_nothing_newer_carries_its_terms() -> None:
    postings = archive(s37="postgresql port", s91="postgresql port", s137="postgresql port", s600="port")
    assert chronology(137, ["postgresql", "port"], postings) == Chronology("latest_chronological")
    assert chronology(91, ["postgresql", "port"], postings) == Chronology("superseded")
    assert chronology(37, ["postgresql", "port"], postings) == Chronology("historical")


def test_a_newer_step_in_view_is_named_and_nothing_archived_is_then_the_latest() -> None:
    postings = archive(s137="postgresql port", s600="postgresql port moved", s601="postgresql port")
    assert chronology(137, ["postgresql", "port"], postings, in_view={600}) == Chronology("superseded", 600)
    assert chronology(137, ["postgresql", "port"], postings, in_view={600, 601}) == Chronology("superseded", 601)


def test_only_what_is_newer_and_carries_all_the_terms_outdates_a_step() -> None:
    postings = archive(s37="postgresql port", s137="postgresql port", s600="port")
    assert chronology(137, ["postgresql", "port"], postings, in_view={37, 600}) == Chronology("latest_chronological")


def test_a_step_that_lacks_the_terms_is_not_the_latest_beside_a_newer_one_that_has_them() -> None:
    assert chronology(5, ["port"], archive(s5="table", s9="port")).status != "latest_chronological"


def test_the_message_that_asks_is_no_state() -> None:
    postings = archive(s137="postgresql port", s700="postgresql port")
    asked = chronology(137, ["postgresql", "port"], postings, in_view={700}, ignored={700})
    assert asked == Chronology("latest_chronological")


def test_a_step_named_without_a_matching_term_stands_alone() -> None:
    assert chronology(5, [], archive(s5="port", s9="port")) == Chronology("latest_chronological")


def test_an_index_forgets_what_a_step_carried_when_it_is_added_again_or_taken_out() -> None:
    postings = archive(s9="old word", s1="old")
    postings.add(9, ["new"], 7)
    assert set(postings.steps("old")) == {1}
    assert (set(postings.steps("new")), postings.cost(9), len(postings)) == ({9}, 7, 2)
    postings.remove(9)
    postings.remove(9)
    assert (set(postings.steps("new")), 9 in postings, 1 in postings) == (set(), False, True)
