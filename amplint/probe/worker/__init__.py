"""The half of the probe that runs in the user's interpreter: executes functions on stand-ins."""
