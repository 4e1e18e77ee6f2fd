"""Sessions as actors over a journal, one event stream, and the page as a view of it."""
