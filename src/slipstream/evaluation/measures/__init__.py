"""The measurements: each takes a subject and prepared work, and yields its results one by one."""
