"""The HTTP interface as an OpenAPI document, made from the tables that requests are checked with."""
