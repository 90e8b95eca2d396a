"""What the command line does, one file for a family of commands."""
