"""Published claims, and the judge that holds them against physics and measurements.

>>> from enginebook.claims import load_register, judge
"""

from enginebook.claims.judge import judge
from enginebook.claims.model import Claim, Register, Setting
from enginebook.claims.register import load_register, read_claims

__all__ = ["Claim", "Register", "Setting", "judge", "load_register", "read_claims"]
