"""What operators see: the log, metrics and traces. It decides nothing."""
