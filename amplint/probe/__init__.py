"""Executes the user's own functions with real torch, to confirm findings."""
