"""The event stream: what is new, to each viewer once, in order, and encoded once for all."""
