"""Rules of one company about AMP."""
