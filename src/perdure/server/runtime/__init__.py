"""The runtimes that a server knows: started when needed, watched, idled, and shown."""
