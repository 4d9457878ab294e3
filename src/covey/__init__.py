"""Covey: a query-aware inference engine for AI-SQL."""
