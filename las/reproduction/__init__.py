"""The papers' tables, claims and reports."""
