"""A session as an actor with a journal: its state, its owner, its commands, what a look says."""
