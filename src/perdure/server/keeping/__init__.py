"""What routines and workflows share: a journal each, kept in memory and attended to."""
