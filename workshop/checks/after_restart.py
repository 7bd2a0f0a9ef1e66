"""What a restarted run resumes from."""

from ..verdicts import check


def _rates(worker):
    return {rate for fact in worker.all("gradient") for rate in fact["rates"]} if worker else set()


def _newest(run):
    """The newest checkpoints from before the last start: one, or one of each node."""
    before = [save for save in run.saves if save.attempt < run.attempts[-1].number]
    return [save for save in before if save.epochs == max(one.epochs for one in before)]


def _is_from(worker, kind, newest):
    """Whether it began with what one of these has: nodes whose weights differ save each its own."""
    return any(save.prints.issuperset(worker.begin[kind]) for save in newest)


def _judge(run):
    """Whether all ranks begin after the newest epoch that any node has saved, and run the rest."""
    again, newest = run.attempts[-1], _newest(run)
    if not (again.trained and newest):
        return None
    done, total = newest[0].epochs, run.all("act")[-1]["asked"]["total_epochs"]
    if not all(_is_from(worker, "parameters", newest) for worker in again.trained):
        before = [save for save in run.saves if save.attempt < again.number]
        saved = {save.worker.node: save.epochs for save in before}
        nodes = [worker.node for worker in run.processes]
        on = {node: f" on {node}" if node else "" for node in nodes}
        has = " and ".join(f"epoch {epoch} was saved{on[node]}" for node, epoch in saved.items())
        began = [f"{w.name}{on[w.node]} began after epoch {w.started_after}" for w in again.trained]
        return False, f"{has}; started again, {', '.join(began)}"
    for worker in again.trained:
        if len(worker.epochs) != total - done and not run.first("hung", "late") and not run.crash:
            return False, (
                f"epoch {done} of {total} was saved; after the restart {worker.name} ran "
                f"{len(worker.epochs)} epochs, not {total - done}"
            )
    for worker in again.trained:
        late = [fact["step"] for fact in worker.all("loaded") if fact["path"]]  # not from memory
        if step := next((n for n in late if 0 < n < worker.number_of_steps), None):
            return False, (
                f"{worker.name} loads a checkpoint again after step {step}, and what was trained "
                "since that was saved is lost: load once, before the first epoch"
            )
    return True, f"all {len(again.trained)} ranks resumed after epoch {done}"


@check("3_fault_tolerance", "resume", "multigpu_torchrun")
def where_saved(run):
    """After a failure, all ranks resume from the newest checkpoint.

    torchrun restarts all processes, and each begins at the script's first line. Look for a
    checkpoint there, load its weights, and start with the epoch after it.
    """
    if verdict := _judge(run):
        arguments = run.first("arguments")
        if verdict[0] and arguments and not arguments["resume"]:
            return False, "with --checkpoint_path, it would refuse the file that it has saved"
        return verdict
    if run.all("fault") and not run.crash and len(run.attempts) < 2:
        return False, "after the failure, torchrun restarted nothing"
    return None


@check("3_fault_tolerance", "resume", "multigpu_torchrun")
def resumes_when_started_again(run):
    """Started again by hand, it resumes as well.

    After a power cut or a scheduler's limit, no torchrun is left that restarts. So look for a
    checkpoint at every start, not only after a restart.
    """
    return _judge(run) if len(run.all("act")) > 1 else None


@check("4_multinode", "resume-from-the-newest", "multinode")
def from_the_newest(run):
    """All ranks resume from the newest checkpoint that any node has.

    A node may come back with an empty disk. If ranks resume from different epochs, they run
    different numbers of steps, and the run hangs. Let them agree before they begin.
    """
    return _judge(run)


@check("3_fault_tolerance", "resume", "multigpu_torchrun", "multinode")
def with_the_optimizer(run):
    """The optimizer resumes too, not only the model.

    SGD with momentum, Adam and most other optimizers have a state. Without it, the first steps
    after a restart differ from those of an undisturbed run.
    """
    again, newest = run.attempts[-1], _newest(run)
    if not (again.trained and newest):
        return None
    for worker in again.trained:
        state = worker.begin["state"]
        stateless = all(not step.fact["state"] for step in worker.steps)
        if not stateless and not (state and _is_from(worker, "state", newest)):
            what = "another state" if state else "an empty state"
            return False, f"after the restart, the optimizer of {worker.name} began with {what}"
        before = next((w for w in run.attempts[0].trained if w.rank == worker.rank), None)
        known, now = _rates(before), _rates(worker)
        grown = {rate * len(again.trained) / len(run.attempts[0].trained) for rate in known}
        if len(known) == 1 and now and not now & (known | grown):  # with the number of ranks
            return False, (
                f"after the restart, the learning rate of {worker.name} was {min(now):g}; before, "
                f"it was {min(known):g}"
            )
        lost = before.epochs[newest[0].epochs :] if before else []
        repeated = [step for steps in lost for step in steps]
        for number, (old, new) in enumerate(zip(repeated, worker.steps, strict=False)):
            if not old.fact["gradient"] or old.fact["gradient"] != new.fact["gradient"]:
                break
            if old.fact["parameters"] != new.fact["parameters"]:
                return False, (
                    f"{worker.name} had the same gradient in {worker.place(number)} before the "
                    "restart, but its optimizer made other weights of it: did the learning rate, "
                    "or another setting, change?"
                )
    return True, f"with the saved state, on all {len(again.trained)} ranks"
