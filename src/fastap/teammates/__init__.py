"""Who an agent may have to work with."""
