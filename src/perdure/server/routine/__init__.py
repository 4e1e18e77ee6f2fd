"""Routines: schedules that send messages into sessions, each with a journal of its own."""
