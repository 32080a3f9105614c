r"""How far can an information mediator steer a herd? Sequential social learning with a planner who sets precision.

The mediator cannot lie and knows no more than its users; its one lever is how precise each user's private signal is.
Users also see what earlier users did. This instrument solves for the optimal precision policy, altruistic or biased,
evaluates any policy exactly (a language model's too), and checks a log for the transparency that the model assumes.

    >>> from gnomon.society.planner import HerdModel, LinearCost, evaluate, solve
    >>> biased = HerdModel(p=0.7, delta=0.9, cost=LinearCost(0.3), objective="biased")
    >>> solution = solve(biased)
    >>> round(float(solution.V(0.4)), 3), round(solution.just_above(0.5), 3)
    (-2.889, -0.6)
    >>> round(evaluate(biased, solution.policy, 0.5).W_B, 3)
    -0.909

Paper: Arghal, He, Saeedi Bidokhti & Sarkar, "Steering the Herd" (ICLR 2026), arXiv 2504.02648.
"""

from gnomon.society.planner.agents import AgentModel, BayesianAgent, GretherAgent, respond
from gnomon.society.planner.audit import TransparencyAudit, audit_log
from gnomon.society.planner.convexity import convexity_defect
from gnomon.society.planner.deviation import Deviation, policy_deviation
from gnomon.society.planner.estimation import GretherFit, estimate_agent
from gnomon.society.planner.evaluation import Evaluation, evaluate
from gnomon.society.planner.grid import solve_aware
from gnomon.society.planner.model import CallableCost, HerdModel, LinearCost, PowerCost
from gnomon.society.planner.phase_diagram import conformity, myopic_policy, phase_diagram, without_obfuscation
from gnomon.society.planner.policies import CallablePolicy, FixedPolicy, InterpolatedPolicy, Policy, RandomPolicy
from gnomon.society.planner.records import Record, answers, read_records, write_records
from gnomon.society.planner.replay import ReplayedAgent
from gnomon.society.planner.simulation import Trajectories, cascade_time, run_welfare, simulate, wrong_cascade_rate
from gnomon.society.planner.solution import ConvergenceError, Solution
from gnomon.society.planner.solver import solve, solve_rounds

__all__ = [
    "AgentModel",
    "BayesianAgent",
    "CallableCost",
    "CallablePolicy",
    "ConvergenceError",
    "Deviation",
    "Evaluation",
    "FixedPolicy",
    "GretherAgent",
    "GretherFit",
    "HerdModel",
    "InterpolatedPolicy",
    "LinearCost",
    "Policy",
    "PowerCost",
    "RandomPolicy",
    "Record",
    "ReplayedAgent",
    "Solution",
    "Trajectories",
    "TransparencyAudit",
    "answers",
    "audit_log",
    "cascade_time",
    "conformity",
    "convexity_defect",
    "estimate_agent",
    "evaluate",
    "myopic_policy",
    "phase_diagram",
    "policy_deviation",
    "read_records",
    "respond",
    "run_welfare",
    "simulate",
    "solve",
    "solve_aware",
    "solve_rounds",
    "without_obfuscation",
    "write_records",
    "wrong_cascade_rate",
]
