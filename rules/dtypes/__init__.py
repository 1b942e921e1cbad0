"""Rules about weights, losses and targets in the wrong precision."""
