"""What torch things are: roles, library rows, dtypes, losses; asks `code` and `values`."""
