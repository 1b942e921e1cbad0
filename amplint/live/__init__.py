"""`amplint run`: the third observer, which watches whole trainings while they happen.

In the user's process only `watching`, `record`, `catalogue` and `amplint.runtime` are loaded, and
nothing but torch and the standard library. What reads the records needs no torch.
"""
