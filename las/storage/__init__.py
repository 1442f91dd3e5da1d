"""Files that must not be lost or trusted blindly: run directories, checkpoints, bundles, archives, downloads."""
