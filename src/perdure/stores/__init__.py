"""Stores: one module each; `open_store` picks one by the scheme of a URL."""
