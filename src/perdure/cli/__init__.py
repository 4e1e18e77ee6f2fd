"""The command line, one module per verb.

`perdure serve | chat | ls | show | export | import | verify | salvage`.
"""

from perdure.cli.command import main

__all__ = ["main"]
