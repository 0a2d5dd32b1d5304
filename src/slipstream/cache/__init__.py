"""Pages: who owns them (logical) and where their bytes are (physical)."""
