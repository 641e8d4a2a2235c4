"""Who is reliable: informativeness, agreement, honeypots, and flags with their evidence."""
