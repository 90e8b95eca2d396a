"""Training methods beside the groups of a zoo, and never losing what was trained."""
