"""From paths to parsed files: discovery, decoding, screen, guarded parse, suppressions."""
