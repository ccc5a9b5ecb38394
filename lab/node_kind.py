"""Whether the nodes of a lab are real: decided when it is made, and kept until it is removed."""

from pathlib import Path

from lab.nodes.choice import Choice, Kind, MachineFacts, Wanted, choose, obstacles, shortages
from lab.spec import known


def decide(folder: Path, wanted: Wanted, facts: MachineFacts) -> Choice:
    """What the nodes of the lab in `folder` are, or will be; `refused` says that it cannot be so.

    Pods of played nodes are no containers and those of real ones are: a lab does not change its kind.
    """
    there = known(folder)
    if there is None:
        return choose(wanted, facts)
    kept = there.kind
    if wanted is not Wanted.AUTO and kept.value != wanted.value:
        why = (
            f"the lab in {folder} has {kept.value} nodes; remove it first with `gpu-clusters down`"
        )
        return Choice(kept, why, refused=True)
    if kept is Kind.SIMULATED:
        why = "the lab that is there has simulated nodes"
        if wanted is not Wanted.AUTO or obstacles(facts):
            return Choice(kept, why)
        return Choice(
            kept, why, passing="; ".join(shortages(facts)) or "this machine can have real ones now"
        )
    # What they take of the machine they may have taken already: only what makes them impossible counts.
    if found := obstacles(facts):
        why = f"the lab in {folder} has real nodes, and {'; '.join(found)}"
        return Choice(kept, why, refused=True)
    return Choice(kept, "the lab that is there has real nodes")
