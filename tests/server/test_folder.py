"""What is shown of a path to people who need not know where it is."""

import pytest

from perdure.server.folder import without_folders


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("file '/srv/data/s.db', position 3", "file 's.db', position 3"),
        ("'/mnt/My Name/a:b/s.db' was removed", "'s.db' was removed"),
        ('"/mnt/it\'s/s.db" is full', '"s.db" is full'),
        ("/srv/data/s.jsonl, line 1, byte 0", "s.jsonl, line 1, byte 0"),
        ("IOError('/a/b: no')", "IOError('b: no')"),
        ("read https://perdure.example/a/b and s/t", "read https://perdure.example/a/b and s/t"),
        ("[Errno 20] Not a folder: '/x'", "[Errno 20] Not a folder: '/x'"),
        ("a '/v' and a '/w/v'", "a '/v' and a 'v'"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_a_path_is_its_last_name(text: str, shown: str) -> None:
    assert without_folders(text) == shown
