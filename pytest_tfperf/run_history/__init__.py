"""The history of a team's runs, in objects of any file system or in PostgreSQL."""
