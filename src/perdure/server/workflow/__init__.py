"""Workflows: ordered steps, each attempt a turn, resumed at the first step without an end."""
