"""The command line: `perdure serve | chat | ls | show | verify`, one module per verb."""

from perdure.cli.command import main

__all__ = ["main"]
