"""Model shapes, hardware ceilings, roofline bounds; pure functions."""
