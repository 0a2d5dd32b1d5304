"""Building, memory, rows and the step. Executes a plan, never changes one."""
