"""Is the result of a collective used as it is meant?"""

from ..rule import rule


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


@rule("warning")
def not_waited(run):
    """The handle of an asynchronous collective is thrown away.

    Nothing then waits for the result, so what follows may read the tensor before it is there, or
    write to it while it is sent. Keep the handle, and call its `wait()` before you use the tensor.
    """
    for fact in run.all("dropped"):
        yield "the call returned at once", fact["where"]
