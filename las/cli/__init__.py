"""The command `las`, one file for each verb."""
