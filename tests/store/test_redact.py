"""Secrets that can be told by their form are taken out; what only looks a little like one stays."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import findings, redact, redact_values
from store.redact import KINDS

# Put together here, so that no scanner takes this file for a leak.
LETTERS = (string.ascii_letters + string.digits) * 8
HEX = "0123456789abcdef" * 8
PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 2
SECRETS = {
    "anthropic key": ["sk-" + "ant-api03-" + LETTERS[:90] + "-AA"],
    "openrouter key": ["sk-" + "or-v1-" + HEX[:64]],
    "openai key": ["sk-" + "proj-" + LETTERS[:100] + "_x", "sk-" + LETTERS[:20] + "T3BlbkFJ" + LETTERS[30:62]],
    "groq key": ["gsk" + "_" + LETTERS[:52]],
    "xai key": ["xai" + "-" + LETTERS[:80]],
    "hugging face token": ["hf" + "_" + LETTERS[:34]],
    "github token": ["ghp" + "_" + LETTERS[:36], "github" + "_pat_" + LETTERS[:22] + "_" + LETTERS[:59]],
    "gitlab token": ["glpat" + "-" + LETTERS[:20]],
    "slack token": ["xoxb" + "-123456789012-123456789012-" + LETTERS[:24], "xapp" + "-1-A01-" + HEX[:64]],
    "aws key": ["AKIA" + "ABCDEFGHIJKLMNOP", "ASIA" + "0123456789ABCDEF"],
    "google key": ["AIza" + LETTERS[:35]],
    "google token": ["ya29" + "." + LETTERS[:60]],
    "google secret": ["GOCSPX" + "-" + LETTERS[:28]],
    "stripe key": ["sk" + "_live_" + LETTERS[:24], "rk" + "_test_" + LETTERS[:30]],
    "stripe secret": ["whsec" + "_" + LETTERS[:32]],
    "npm token": ["npm" + "_" + LETTERS[:36]],
    "pypi token": ["pypi" + "-AgEIcHlwaS5vcmc" + LETTERS[:70]],
    "docker token": ["dckr" + "_pat_" + LETTERS[:27]],
    "digitalocean token": ["dop" + "_v1_" + HEX[:64]],
    "databricks token": ["dapi" + HEX[:32]],
    "vault token": ["hvs" + "." + LETTERS[:24]],
    "atlassian token": ["ATATT3" + LETTERS[:100] + "=ABCD"],
    "sendgrid key": ["SG" + "." + LETTERS[:22] + "." + LETTERS[:43]],
    "twilio key": ["SK" + HEX[:32]],
    "telegram token": ["123456789:" + "AA" + LETTERS[:33]],
    "shopify token": ["shpat" + "_" + HEX[:32]],
    "age key": ["AGE-SECRET" + "-KEY-1" + "Q" * 58],
    "jwt": ["eyJ" + LETTERS[:20] + "." + "eyJ" + LETTERS[:40] + "." + LETTERS[:43]],
    "private key": [
        "-----BEGIN " + f"{kind}PRIVATE KEY-----\n{PEM}\n{PEM}\n-----END {kind}PRIVATE KEY-----"
        for kind in ("", "RSA ", "OPENSSH ")
    ],
}
PASSWORD = "q7" + "Zr!kd9"
NAMED = {
    "password in a url": [
        ("postgres://app:", PASSWORD, "@db.internal:5432/shop"),
        ("https://x:", "t0p-" + "s3cret", "@h/"),
    ],
    "aws secret": [("aws_secret_access_key = ", LETTERS[:40], ""), ('"SecretAccessKey": "', LETTERS[5:45], '"')],
    "azure key": [("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=", LETTERS[:86] + "==", ";")],
    "npm token": [("//registry.example.org/:_authToken=", HEX[:36], "")],
    "slack webhook": [("https://hooks.slack.com/services/", "T01234567/B01234567/" + LETTERS[:24], "")],
    "authorization header": [
        ("Authorization: Bearer ", LETTERS[:40], ""),
        ('{"authorization": "Basic ', "dXNlcjpwYXNzd29yZA==", '"}'),
        ("Proxy-Authorization: token ", LETTERS[:20], "\r\n"),
    ],
    "api key header": [("x-api-key: ", LETTERS[:32], ""), ("X-Goog-Api-Key=", LETTERS[:39], "&a=b")],
    "bearer token": [("curl -H 'bearer ", LETTERS[30:70], "'")],
}
HARMLESS = [
    "commit 595cfe0d3b2f4f7a9c1e8d6b5a4938271605f4e3",
    "id 123e4567-e89b-12d3-a456-426614174000",
    'class="sk-fading-circle sk-folding-cube sk-chasing-dot-before-after"',
    "sk-learn-contrib-and-other-names-with-many-words",
    "https://example.com:8080/path@2x.png and user@example.com",
    "postgres://localhost:5432/db, postgres://postgres:postgres@localhost/db, mysql://user:password@host",
    "postgres://app:${DB_PASSWORD}@db, amqp://a:<secret>@b, redis://x:{{ pass }}@y, http://u:%s@h, http://a:$PW@b",
    "Authorization: Bearer <token>, Authorization: Bearer $TOKEN, Authorization: Basic {credentials}",
    "Authorization: AWS4-HMAC-SHA256 Credential=, authorization=self.authorization_scheme",
    "the bearer of this letter is internationalizations of bureaucracies",
    "-----BEGIN PUBLIC KEY-----\n" + PEM + "\n-----END PUBLIC KEY-----",
    "look for -----BEGIN PRIVATE KEY----- in the file, it is short",
    "ghp_tooshort, AKIA123, xoxb-, hf_model, npm_config_registry, SKU0123456789abcdef",
    "eyJhbGciOiJIUzI1NiJ9 alone is a header, no token",
    "data:image/png;base64," + LETTERS,
    "MASKIA" + "ABCDEFGHIJKLMNOPQ",
    LETTERS,
]


AROUND = (("", ""), ("key=", "\n"), ('{"a": "', '"}'), ("Use ", ". It works"), ("(", ")"), ("türkçe ", "ş"))


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_of_its_own_form_is_taken_out_wherever_it_stands(kind: str) -> None:
    for secret in SECRETS[kind]:
        for before, after in (
            ("", ""),
            ("key=", "\n"),
            ('{"a": "', '"}'),
            ("Use ", ". It works"),
            ("(", ")"),
            ("türkçe ", "ş"),
        ):
            text, counts = redact(before + secret + after)
            assert (text, counts) == (f"{before}[redacted: {kind}]{after}", {kind: 1})
        assert [found for found, _ in findings(f"a {secret} b")] == [kind]


@pytest.mark.parametrize("kind", NAMED)
def test_of_a_secret_that_its_name_tells_only_the_value_is_taken_out(kind: str) -> None:
    for before, secret, after in NAMED[kind]:
        text, counts = redact(before + secret + after)
        assert (text, counts) == (f"{before}[redacted: {kind}]{after}", {kind: 1})


def test_every_kind_has_an_example_here() -> None:
    assert {kind.name for kind in KINDS} | {"private key"} == SECRETS.keys() | NAMED.keys()


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert redact(text) == (text, {})
    assert list(findings(text)) == []


def test_a_private_key_that_was_cut_off_goes_as_far_as_it_can_be_one() -> None:
    cut = "-----BEGIN " + f"PRIVATE KEY-----\n{PEM}\n{PEM}\n\n$ ls"
    assert redact(cut)[0] == "[redacted: private key]$ ls"
    two = ("-----BEGIN " + f"PRIVATE KEY-----\n{PEM}\n-----END PRIVATE KEY-----\nand ") * 2
    assert redact(two) == ("[redacted: private key]\nand " * 2, {"private key": 2})


@given(
    st.lists(st.sampled_from([s for many in SECRETS.values() for s in many] + HARMLESS + ["\n", " ", "a"]), max_size=6)
)
def test_what_was_redacted_is_not_redacted_again(parts: list[str]) -> None:
    once, _ = redact(" ".join(parts))
    assert redact(once) == (once, {})


TOKEN = SECRETS["github token"][0]
KEY = SECRETS["private key"][0]


def test_values_are_gone_through_and_signatures_and_data_are_not() -> None:
    message = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": f"It is {TOKEN}."},
            {"type": "thinking", "thinking": f"They gave me {TOKEN}", "signature": TOKEN},
            {"type": "redacted_thinking", "data": TOKEN},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": TOKEN}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + TOKEN}},
            {"type": "tool_use", "name": "set", "input": {"token": TOKEN, "n": 1, "on": True, "none": None}},
            {"type": "reasoning", "encrypted_content": TOKEN},
        ],
    }
    before = json.dumps(message)
    clean, counts = redact_values(message)
    assert counts == {"github token": 3}
    assert json.dumps(clean).count(TOKEN) == 5
    assert json.dumps(message) == before
    assert clean["content"][5]["input"] == {"token": "[redacted: github token]", "n": 1, "on": True, "none": None}


def test_a_secret_behind_the_escapes_of_json_in_json_is_found_and_the_json_stays_json() -> None:
    arguments = json.dumps({"file": "id_rsa", "content": KEY})
    assert "\\n" in arguments
    clean, counts = redact_values({"arguments": arguments})
    assert counts == {"private key": 1}
    assert json.loads(clean["arguments"]) == {"file": "id_rsa", "content": "[redacted: private key]"}
    escaped = '{"k": "' + "".join(f"\\u{ord(c):04x}" for c in TOKEN) + '"}'
    assert json.loads(redact_values([escaped])[0][0]) == {"k": "[redacted: github token]"}


def test_values_without_a_secret_are_the_same_object() -> None:
    value = {"role": "user", "content": "nothing here"}
    assert redact_values(value)[0] is value


HOSTILE = [
    "eyJ" * 400_000,
    "eyJaaaaaaaa.eyJaaaaaaaa." * 50_000,
    "://a:b" * 200_000,
    "sk-" * 400_000,
    "sk-" + "a" * 1_000_000,
    "authorization:" + " " * 1_000_000,
    "-----BEGIN PRIVATE KEY-----" * 40_000,
    ("://" + "a" * 100) * 10_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_megabyte_made_to_go_back_and_forth_is_gone_through_once(text: str) -> None:
    """With a pattern that goes back, these take minutes."""
    assert redact(redact(text)[0])[1] == {}
