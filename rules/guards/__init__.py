"""Rules about switches, devices and arguments of AMP that do not fit together."""
