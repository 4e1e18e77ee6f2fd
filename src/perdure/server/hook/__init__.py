"""Outside code at named points of a session: hooks.json and plugins."""
