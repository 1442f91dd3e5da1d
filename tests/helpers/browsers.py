"""Browsers that may be installed on this machine."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
