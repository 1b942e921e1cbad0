"""Gradient flow: which modules a loss can reach backwards, and what stands in between."""
