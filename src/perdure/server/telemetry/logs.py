"""The server's log, on standard error: lines for people, or one JSON object a line."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from perdure.codec import encode
from perdure.server.telemetry import told

LogFormat = Literal["text", "json"]

_OWN = (*told.FIELDS, "reason", "seconds", "code")


class JsonFormatter(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, `message`, and whom it is about.

    That is `request_id`, `session_id` and `turn_id`, where there is one; see `told`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; an exception's text is a field of it."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: vars(record)[name] for name in _OWN if name in vars(record)}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return encode(fields).decode()


def set_up(how: LogFormat) -> None:
    """Sends the log to standard error, from INFO on."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if how == "json" else text)
    handler.addFilter(told.ToldFilter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
