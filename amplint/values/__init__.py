"""Where values come from: constants, dtypes, and the calls that created objects."""
