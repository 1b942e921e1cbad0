"""Path-sensitive typestate analysis: which protocol states a program can reach, and how."""
