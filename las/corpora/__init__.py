"""Corpora: one module each, all behind `las.corpora.base.Corpus`."""
