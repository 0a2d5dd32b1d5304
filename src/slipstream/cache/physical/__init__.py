"""Geometry, pools and device page tables. Not who owns a page."""
