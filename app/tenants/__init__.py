"""Who may use the gateway, and what they have used. All SQL is in repository.py."""
