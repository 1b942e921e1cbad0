"""Watches real scalers, optimizers and gradients while a program runs. Needs torch."""
