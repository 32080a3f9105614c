"""Design a transparency rule for a recommender, and measure what it prevents before anyone is steered."""

from dataclasses import replace

from gnomon.society.planner import (
    FixedPolicy,
    HerdModel,
    LinearCost,
    RandomPolicy,
    audit_log,
    evaluate,
    solve,
)
from gnomon.society.planner.simulation import simulate_log

# A recommender that wants everyone to buy. Reviews are right 70 % of the time unless it pays to change that.
seller = HerdModel(p=0.7, delta=0.9, cost=LinearCost(0.3), objective="biased")
prior = 0.5

unruled = solve(seller).policy
spend = evaluate(seller, unruled, prior).spend
rules = {
    "left alone": FixedPolicy(0.7),
    "seller, no rule": unruled,
    "same spend, no aim": RandomPolicy.matching(seller, spend),
    "rule: never below .60": solve(replace(seller, q_min=0.6)).policy,
    "rule: never below .70": solve(replace(seller, q_min=0.7)).policy,
    "rule: never above .70": solve(replace(seller, q_max=0.7)).policy,
}
print(f"{'':22}  welfare if the product is bad   if it is good   buyers")
for name, policy in rules.items():
    worth = evaluate(seller, policy, prior)
    print(f"{name:22}  {worth.W_B:29.3f}   {worth.W_G:13.3f}   {worth.share_G:6.3f}")

# The rule only binds if precision can be checked. A seller who goes on blurring is caught from its log: it shows less
# than it declares, and even if it forges what it used, its signals are right too seldom.
honest = simulate_log(seller, rules["rule: never below .70"], prior, n_runs=300, rounds=10)
blurred = simulate_log(seller, unruled, prior, n_runs=300, rounds=10)
covert = blurred.assign(q_declared=blurred["q_declared"].clip(lower=0.7))
forged = covert.assign(q_used=covert["q_declared"])
for name, log in (("honest", honest), ("covert", covert), ("forged", forged)):
    print(f"\n{name} log\n{audit_log(log)}")
