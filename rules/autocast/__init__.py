"""Rules about what runs inside an autocast region and should not, or outside and should."""
