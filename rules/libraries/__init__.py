"""Rules about training libraries that have a scaler of their own."""
