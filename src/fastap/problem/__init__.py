"""The open Dec-POMDP: teams that change inside an episode."""
