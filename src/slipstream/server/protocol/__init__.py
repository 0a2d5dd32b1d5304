"""The HTTP schema: field tables, request models, response shapes."""
