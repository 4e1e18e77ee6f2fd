"""The contract over HTTP: routes, access, bodies, problems. How sessions work is not known here."""
