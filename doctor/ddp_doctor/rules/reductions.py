"""Is the result of a collective used as it is meant?"""

from ..recorded_run import matched
from ..rule import rule
from .wording import reduced_before_backward


@rule("error")
def total_reduced_again(run):
    """A total is summed over the ranks again and again, with what the last sum has left in it.

    Each time, all that was counted before is multiplied by the number of ranks. Keep each rank's
    own total, and all-reduce a copy of it, or do it once, at the end.
    """
    lines = [{fact["where"]: None for fact in worker.all("resummed")} for worker in run.replicas]
    for line in lines[0] if lines else ():
        if all(line in others for others in lines):  # else one rank makes its own total 0
            yield "three calls in a row got more than the sum of the one before", line


@rule("error")
def names_differ(run):
    """The ranks reduce values of different names.

    The n-th call of one rank meets the n-th call of the others, so a sum of two losses gets the
    name of one. Go through the names in the same order on every rank: `sorted(losses.items())`.
    """
    lines = {}
    for (line, _), facts in matched(run.replicas, "labels", "where", "n").items():
        lines.setdefault(line, []).append([fact["own"] for fact in facts[:2]])
    for line, calls in lines.items():
        for name in calls[0][0]:
            pairs = [(one[name], two[name]) for one, two in calls if {name} <= {*one} & {*two}]
            mine, theirs = ({text for pair in pairs for text in pair[n]} for n in (0, 1))
            differ = [pair for pair in pairs if pair[0] != pair[1]]
            if differ and mine == theirs and len(mine) > 1:
                told = " and ".join(", ".join(texts[:3]) for texts in differ[0])
                yield f"`{name}` is {told} on ranks 0 and 1", line
                break


@rule("error")
def loss_divided_again(run):
    """The loss that is sent backward was all-reduced and divided by the number of ranks.

    DDP averages the gradients, so they are divided twice. Reduce a copy for the report:
    `loss.detach().clone()`.
    """
    if run.first("replicated") and len(run.replicas) > 1:
        yield from [("DDP averages them again", line) for line in reduced_before_backward(run)[:1]]


@rule("warning")
def not_waited(run):
    """The handle of an asynchronous collective is thrown away.

    Nothing then waits for the result, so what follows may read the tensor before it is there, or
    write to it while it is sent. Keep the handle, and call its `wait()` before you use the tensor.
    """
    for fact in run.all("dropped"):
        yield "the call returned at once", fact["where"]
