"""The gateway's endpoints, a file for each family."""
