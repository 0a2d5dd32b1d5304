"""Why a constraint is refused, in the words of whoever sent it: by keyword beforehand, or from the library's error."""
