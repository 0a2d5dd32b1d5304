"""The version of this package, where both the build and the program read it."""

VERSION = "0.1.0"
