"""Leave drafts in the rows for the next step."""
