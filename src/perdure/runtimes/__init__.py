"""Where tools run: a workspace and its tools, here, in a subprocess, or on another machine.

Nothing here knows sessions, journals or the server; the same code runs wherever the workspace is.
"""
