"""How well agents do: greedy play over pools of groups and kinds of change."""
