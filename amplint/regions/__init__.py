"""Which calls run inside which autocast region, across functions and files."""
