"""Tools: what requests may say about them (schema), how calls are written (render) and read back (parser)."""
