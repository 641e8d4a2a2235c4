"""LLM judges as assessors: prompts, batch files, and calls of OpenAI-compatible endpoints within a budget.

A ledger, an SQLite file, stores every reply and its cost, so that a repeated run makes only the calls that have no
reply yet. Only `caller.py` (endpoints of models) and `service_judging.py` (a judging service) open connections.
"""
