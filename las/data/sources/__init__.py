"""Files that describe recordings: one module for each format, all read into `Entry` lists."""
