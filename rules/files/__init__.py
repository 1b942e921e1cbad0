"""Rules about checked files themselves: unreadable ones, idle comments."""
