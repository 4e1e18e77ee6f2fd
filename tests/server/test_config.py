"""Where settings come from, which source wins, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Struct

from perdure.errors import ConfigurationError
from perdure.server.config import EXPLAINED, NAMES, Settings, load_settings, settings_of
from perdure.server.own_token import load_token
from perdure.server.session.limit import Limits


def load(folder: Path, environment: dict[str, str] | None = None, **arguments: object) -> Settings:
    return load_settings(arguments, environment=environment or {}, folder=folder)


def test_without_anything_it_is_the_defaults(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings == Settings()
    assert settings.store_url == "sqlite:///perdure-data/sessions.db"
    assert settings.is_loopback


def test_a_later_source_wins_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text('port = 1\nhost = "localhost"\nloop = "file"\n')
    settings = load(tmp_path, {"PERDURE_PORT": "2", "PERDURE_LOOP": "env"}, port=3, loop=None)
    assert (settings.host, settings.loop, settings.port) == ("localhost", "env", 3)


def test_every_setting_can_come_from_the_environment(tmp_path: Path) -> None:
    given = {
        "PERDURE_STORE": "memory://",
        "PERDURE_HOST": "::1",
        "PERDURE_PORT": "0",
        "PERDURE_LOOP": "shell",
        "PERDURE_LOOPS": "mine:make,mine:other",
        "PERDURE_OFFERED_LOOPS": "named",
        "PERDURE_RUNTIME": "local",
        "PERDURE_WORKSPACE": "w",
        "PERDURE_DATA": "d",
        "PERDURE_HOOKS": "h.json",
        "PERDURE_TOKEN": "0123456789abcdef",
        "PERDURE_TOKENS": "t.toml",
        "PERDURE_MAX_STREAMS": "18",
        "PERDURE_REQUESTS_PER_S": "19.5",
        "PERDURE_HOSTS": "a,b",
        "PERDURE_ORIGINS": "https://a",
        "PERDURE_PROXIES": "127.0.0.1,10.0.0.0/8",
        "PERDURE_HEARTBEAT_S": "0.5",
        "PERDURE_MAX_BODY_BYTES": "10",
        "PERDURE_BACKLOG_BYTES": "11",
        "PERDURE_SNAPSHOT_EVERY": "12",
        "PERDURE_TURN_LIMIT_S": "13",
        "PERDURE_QUARANTINE_AFTER": "14",
        "PERDURE_IDLE_AFTER_S": "15.5",
        "PERDURE_MAX_LIVE_ACTORS": "16",
        "PERDURE_APPROVE": "run_*,write_file",
        "PERDURE_APPROVAL_LIMIT_S": "16.5",
        "PERDURE_COMPACT_AT": "0.7",
        "PERDURE_RETAIN_DAYS": "17",
        "PERDURE_RETAIN_DRY_RUN": "false",
        "PERDURE_GRACE_S": "0",
        "PERDURE_LOG_FORMAT": "json",
    }
    assert {name.removeprefix("PERDURE_").lower() for name in given} == set(NAMES) == set(EXPLAINED)
    settings = load(tmp_path, given)
    assert settings.hosts == ("a", "b")
    assert settings.loops == ("mine:make", "mine:other")
    assert settings.offered_loops == "named"
    assert (settings.heartbeat_s, settings.port, settings.backlog_bytes) == (0.5, 0, 11)
    assert (settings.retain_days, settings.retain_dry_run) == (17, False)
    assert (settings.max_streams, settings.requests_per_s) == (18, 19.5)
    assert str(settings.tokens_path) == "t.toml"
    assert settings.limits == Limits(12, 13, 14, 15.5, 16, 16.5, 0.7)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("prot = 1", "'prot' in"),
        ('port = "1"', "'port' in"),
        ("port = 70000", "'port' in"),
        ("hosts = 'a'", "'hosts' in"),
        ("port = ", "cannot be read"),
        ("plugins = 1", "'plugins' in .* is a table"),
        ("routines = 1", "'routines' in .* is a table"),
        ("tables = {}", "'tables' in"),
        ("[server]\nport = 1", "'server' in"),
        ("heartbeat_s = 15", "'heartbeat_s' in"),
        ("idle_after_s = 0", "'idle_after_s' in"),
        ("max_live_actors = 0", "'max_live_actors' in"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_key_and_place(
    tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / "perdure.toml").write_text(content)
    with pytest.raises(ConfigurationError, match=says) as caught:
        load(tmp_path)
    assert "perdure.toml" in str(caught.value)


class Table(Struct, forbid_unknown_fields=True):
    disabled: tuple[str, ...] = ()


def test_a_table_of_the_file_belongs_to_who_reads_it(tmp_path: Path) -> None:
    assert load(tmp_path).read_table("plugins", Table) == Table()
    (tmp_path / "perdure.toml").write_text('port = 1\n[plugins]\ndisabled = ["a"]\n')
    settings = load(tmp_path, {"PERDURE_TABLES": "x", "PERDURE_PLUGINS": "y"})
    assert settings.port == 1
    assert settings.read_table("plugins", Table) == Table(("a",))


@pytest.mark.parametrize("content", ["disabled = 'a'", "enabled = ['a']", "disabled = [1]"])
def test_a_table_that_is_malformed_is_refused_by_key_and_place(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "perdure.toml").write_text(f"[plugins]\n{content}\n")
    says = r"\[plugins\] in perdure.toml is not valid: .*abled.*; there are disabled"
    with pytest.raises(ConfigurationError, match=says):
        load(tmp_path).read_table("plugins", Table)


def test_hooks_are_those_of_the_setting_or_those_in_the_usual_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings().hook_files == ()
    (tmp_path / "hooks.json").touch()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "hooks.json").touch()
    assert Settings().hook_files == (Path("hooks.json"),)
    assert Settings(data="d").hook_files == (Path("hooks.json"), Path("d/hooks.json"))
    assert Settings(data="d", hooks="mine.json").hook_files == (Path("mine.json"),)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"PERDURE_PORT": "many"}, "PERDURE_PORT is not valid"),
        ({"PERDURE_PORT": "-1"}, "PERDURE_PORT is not valid"),
        ({"PERDURE_TOKNE": "0123456789abcdef"}, "did you mean PERDURE_TOKEN"),
        ({"PERDURE_STORES": "memory://"}, "did you mean PERDURE_STORE"),
    ],
)
def test_a_variable_that_is_wrong_is_refused_by_name(
    tmp_path: Path, environment: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        load(tmp_path, environment)


def test_variables_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    assert load(tmp_path, {"PERDURE_CRASH_ROUNDS": "20", "PERDURE_SESSION_ID": "s"}) == Settings()


@pytest.mark.parametrize("token", ["", "has a space in it!!", "x" * 513, "é" * 20])
def test_a_bad_token_is_refused_without_being_shown(tmp_path: Path, token: str) -> None:
    with pytest.raises(ConfigurationError, match="PERDURE_TOKEN") as caught:
        load(tmp_path, {"PERDURE_TOKEN": token})
    assert not token or token not in str(caught.value)


def test_a_short_token_is_for_this_machine_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load(tmp_path, {"PERDURE_TOKEN": "short"})
    settings.check()
    assert load_token(settings) == "short"
    assert "fewer than 16 characters" in caplog.text
    for far in ({"host": "0.0.0.0"}, {"proxies": "127.0.0.1"}):
        with pytest.raises(ConfigurationError, match="easy to guess") as caught:
            load(tmp_path, {"PERDURE_TOKEN": "short"}, **far).check()
        assert "short" not in str(caught.value)
    load(tmp_path, {"PERDURE_TOKEN": "x" * 16}, host="0.0.0.0").check()


def test_settings_can_be_given_by_name() -> None:
    given = {"store": "memory://", "port": "0", "hosts": "a,b", "tables": {"mcp": {}}}
    expected = Settings(store="memory://", port=0, hosts=("a", "b"), tables={"mcp": {}})
    assert settings_of(given) == settings_of(expected) == expected
    assert settings_of(None) == Settings()
    for wrong in ({"prot": 1}, {"port": "many"}, "memory://"):
        with pytest.raises(ConfigurationError):
            settings_of(wrong)  # type: ignore[arg-type]  # what is refused


def test_an_argument_of_the_wrong_type_is_refused_by_its_flag(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--max-body-bytes is not valid"):
        load(tmp_path, max_body_bytes="many")
