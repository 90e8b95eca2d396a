"""The learner that every method shares."""
