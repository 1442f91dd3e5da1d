"""Files on disk: run directories, checkpoints, bundles, archives, downloads; written atomically, read with checks."""
