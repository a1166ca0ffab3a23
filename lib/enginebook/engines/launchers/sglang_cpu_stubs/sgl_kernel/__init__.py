"""Stand-in for SGLang's CUDA kernels, of which no CPU build is published."""

from enginebook_absent import stand_in_for  # type: ignore[import-not-found]

__version__ = "0.0.0"
stand_in_for(__name__)
