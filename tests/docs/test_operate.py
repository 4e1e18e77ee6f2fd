"""The examples for operators: they parse, and what they name exists."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path

from perdure.cli.command import parser
from perdure.server.config import load_settings

PAGE = (Path(__file__).parents[2] / "docs/howto/operate.md").read_text()


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_unit_starts_a_server_with_options_that_there_are() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]  # keep the case of keys
    unit.read_string(block("ini"))
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert program.endswith("/perdure")
    options = parser().parse_args(arguments)
    assert float(options.grace_s) < float(service["TimeoutStopSec"])
    given = {"grace_s": options.grace_s, "log_format": options.log_format}
    assert load_settings(given, environment={}, folder=Path("no such")).grace_s == 60


def test_the_container_starts_a_server_with_settings_that_there_are() -> None:
    lines = dict(line.split(" ", 1) for line in block("dockerfile").splitlines())
    environment = dict(each.split("=", 1) for each in lines["ENV"].split())
    settings = load_settings({}, environment=environment, folder=Path("no such"))
    assert (settings.host, settings.log_format) == ("0.0.0.0", "json")
    assert f"{settings.port}" == lines["EXPOSE"]
    command = json.loads(lines["ENTRYPOINT"])[1:] + json.loads(lines["CMD"])
    assert callable(parser().parse_args(command).run)


def test_every_setting_that_the_page_names_is_one() -> None:
    named = set(re.findall(r"PERDURE_(\w+)", PAGE))
    known = set(load_settings({}, environment={}, folder=Path("no such")).__struct_fields__)
    assert {name.lower() for name in named} <= known
