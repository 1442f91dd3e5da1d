"""Scoring of hypotheses against references, with counts equal to those of NIST's sclite."""
