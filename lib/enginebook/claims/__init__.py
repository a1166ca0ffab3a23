"""Published claims, their judge, and the decision guide; pure functions over frames.

>>> from enginebook.claims import load_register, judge
"""

from enginebook.claims.consistency import against_own_tables
from enginebook.claims.decision import Guide, effort, guide
from enginebook.claims.judge import judge
from enginebook.claims.model import Claim, Register, Setting
from enginebook.claims.need import Workload
from enginebook.claims.ranking import rank
from enginebook.claims.register import load_register, read_claims
from enginebook.claims.tables import explain_register, figures_under_hypotheses, quoted_figures
from enginebook.claims.tree import decision_rules, feature_table

__all__ = [
    "Claim",
    "Guide",
    "Register",
    "Setting",
    "Workload",
    "against_own_tables",
    "decision_rules",
    "effort",
    "explain_register",
    "feature_table",
    "figures_under_hypotheses",
    "guide",
    "judge",
    "load_register",
    "quoted_figures",
    "rank",
    "read_claims",
]
