"""How fast it is here, beside the peers that are installed."""
