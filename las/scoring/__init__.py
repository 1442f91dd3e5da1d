"""Reference against hypothesis, with counts equal to those of NIST's sclite."""
