"""Applying the fixes of findings: text edits, each verified, files replaced whole or not at all."""
