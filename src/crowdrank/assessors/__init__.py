"""Reliability of assessors: informativeness, bias, agreement, honeypots, and flags with their evidence."""
