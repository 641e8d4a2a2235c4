"""Readers of files and DataFrames, and writers of tables: judgments, expert grades, features, rankings and texts."""
