"""The commands of `python -m bench`, by what they measure: each reads its options and runs a module of its name."""
