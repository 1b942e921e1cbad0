"""Copied into the folder of a run, and found there first by every Python of the command."""
