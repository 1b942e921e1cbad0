"""Rules about the order in which a scaler, its optimizers and their gradients are used."""
