"""Rewrites of programs that keep what they do; `scripts/restyle.py` runs them."""
