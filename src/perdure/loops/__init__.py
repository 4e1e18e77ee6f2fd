"""Loops: one module per kind of inner agent."""
