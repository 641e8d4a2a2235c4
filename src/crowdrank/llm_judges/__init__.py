"""LLM judges as assessors: prompts, batch files, and calls of OpenAI-compatible endpoints with a ledger and a budget.

Only `endpoint.py` opens network connections, and only `crowdrank judge run` uses it.
"""
