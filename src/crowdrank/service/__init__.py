"""Judging service: people and LLM judges answer, the database hands out pairs and keeps every answer."""
