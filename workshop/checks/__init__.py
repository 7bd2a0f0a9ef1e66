"""The checks, in the order in which a learner should fix them."""

from . import beyond, data, files, loss, processes, resume, training

LESSONS = ("multigpu", "multigpu_torchrun", "multinode")
BEYOND = {  # a lesson of beyond/ with exercises: which of multinode's checks do not hold of it
    "explicit_gradients": [],
    "scale_lr": [],
    "zero": [],
    "uneven": [processes.all_take_part, training.stay_equal, training.gradient_is_mean,
               loss.is_global, files.saved_complete],
    "local_sgd": [training.stay_equal, training.gradient_is_mean, files.saved_complete,
                  files.last_epoch_saved],
    "random_seed_offset": [data.shared],
}  # fmt: skip
ORDER = [
    processes.is_python, processes.one_process_each, processes.started_by_torchrun,
    processes.joined, processes.port_of_its_own, processes.device_of_its_own,
    beyond.rate_grows, beyond.state_is_divided, beyond.trains_to_the_end, beyond.trains_one_model,
    beyond.averages_now_and_then, beyond.draws_its_own,
    files.saved_on_every_node,
    resume.from_the_newest, resume.where_saved, resume.with_the_optimizer,
    processes.all_take_part,
    training.stay_equal, training.gradient_is_mean,
    data.shared, data.order_changes,
    loss.reported_once, loss.is_global,
    files.saved_once, files.saved_atomically, files.saved_without_ddp,
    files.last_epoch_saved, files.saved_complete,
    processes.cause_is_named, processes.left_the_group, processes.ends_well,
]  # fmt: skip
OF = {name: [one for one in ORDER if name in (one.lessons or LESSONS)] for name in LESSONS}
for name, without in BEYOND.items():
    OF[name] = [one for one in ORDER if name in one.lessons or one in OF["multinode"]]
    OF[name] = [one for one in OF[name] if one not in without]
WITH_THREE = [  # of the second run: three processes, one of which fails
    processes.one_process_each, processes.joined, training.stay_equal, training.gradient_is_mean,
    processes.ends_when_a_rank_fails,
]  # fmt: skip
EXTRA = {"survives-a-power-cut": files.survives_a_power_cut}  # of an exercise alone
