"""What every process needs: configs, errors, devices, signals, progress. Knows no model and no corpus."""
