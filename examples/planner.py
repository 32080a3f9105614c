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

# The rule only binds if precision can be checked. A seller who blurs more than it says is caught from its log.
honest = simulate_log(seller, rules["rule: never below .70"], prior, n_runs=300, rounds=10)
covert = honest.assign(q_used=0.55)
print("\nhonest log\n" + str(audit_log(honest)))
print("covert log\n" + str(audit_log(covert)))
