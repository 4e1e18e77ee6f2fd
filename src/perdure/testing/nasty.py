"""Input that breaks stores: session ids and texts that each broke somebody's once."""

from __future__ import annotations

INVALID_SESSION_IDS: tuple[object, ...] = (
    "",
    ".",
    "..",
    "x" * 513,
    "é" * 257,
    "a\x00b",
    "a\nb",
    "a\x1fb",
    "a\x7fb",
    "a\x85b",
    "a\ud800b",
    None,
    7,
    b"bytes",
)
"""What every verb of every store refuses with InvalidSessionIdError."""

DISTINCT_SESSION_IDS: tuple[str, ...] = (
    "a",
    "A",
    " a",
    "a ",
    "a.",
    ".a",
    "-a",
    "_a",
    "~a",
    "a/b",
    "a\\b",
    "a_b",
    "a%2Fb",
    "a%2fb",
    "%61",
    "%",
    "../a",
    "/a",
    "/etc/passwd",
    "a.jsonl",
    "a.lock",
    "a.torn-1",
    "a.jsonl.tmp",
    "con",
    "nul.txt",
    "k",
    "\u212a",  # the Kelvin sign, which lower() makes a k
    "ss",
    "ß",
    "i",
    "ı",
    "İ",
    "caf\u00e9",  # composed
    "cafe\u0301",  # decomposed
    "\ufb01",  # a ligature, which NFKC makes "fi"
    "fi",
    "\u2028",
    "\u202ea",
    "😀",
    "x" * 512,
    "x" * 511 + "y",
    "x" * 511,
    "x" * 100,
    "x" * 101,
    "'; drop table entries; --",
    "*",
    "$(id)",
    "a:b",
    "a.b",
    "a>b",
    "{}",
    "\U0010ffff",
)
"""Ids that are all valid, and of which no two are the same session."""

TEXTS: tuple[tuple[str, str], ...] = (
    ("", ""),
    ("a\x00b", "a\x00b"),
    ("a\nb\r\nc\rd", "a\nb\r\nc\rd"),
    ("\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e", "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e"),
    ("\ud800", "\ufffd"),
    ("\udc00\ud800", "\ufffd\ufffd"),
    ("a\udfffb", "a\ufffdb"),
    ("\ud83d\ude00", "😀"),
    ("\ufeffmark", "\ufeffmark"),
    ('"\\\\/\\u0000', '"\\\\/\\u0000'),
    ("\x01\x1f\x7f\x9f", "\x01\x1f\x7f\x9f"),
    ("cafe\u0301 caf\u00e9", "cafe\u0301 caf\u00e9"),
    ("\ufdd0\ufffe\uffff\U0010ffff", "\ufdd0\ufffe\uffff\U0010ffff"),
    ("👩‍👩‍👧‍👦🇩🇪", "👩‍👩‍👧‍👦🇩🇪"),
    ('"}\n{"type":"message","seq":9}', '"}\n{"type":"message","seq":9}'),
    (',"seq":1,"sum":"' + "0" * 32 + '"}', ',"seq":1,"sum":"' + "0" * 32 + '"}'),
    (" leading and trailing \t", " leading and trailing \t"),
)
"""What is written, and what every store gives back."""
