"""Engines: whatever holds a target model. `base.py` is the seam."""
