"""Stand-in for torchvision, which SGLang imports for image models alone."""

from enginebook_absent import stand_in_for  # type: ignore[import-not-found]

__version__ = "0.28.0"
stand_in_for(__name__)
