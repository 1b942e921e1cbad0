"""Whether a torch does what the table of the protocol says; runs in the Python that has that torch."""
