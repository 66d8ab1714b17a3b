"""edgekit as a systemd service."""
