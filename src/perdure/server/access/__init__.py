"""Who may do what: tokens and their principals, what a role may, and how much of it at once."""
