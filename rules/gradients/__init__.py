"""Rules about grad modes and graphs in which a loss reaches nothing, or another pass."""
