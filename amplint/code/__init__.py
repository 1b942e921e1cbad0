"""What Python code says: modules, names, classes, calls; nothing of torch."""
