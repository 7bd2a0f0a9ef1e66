"""The checks of each lesson, in the order in which a learner should fix them."""

from . import data, files, loss, processes, resume, training

_TRAINING = [
    processes.all_take_part,
    data.shared,
    data.order_changes,
    loss.reported_once,
    loss.is_global,
]
_SAVING = [
    files.saved_atomically,
    files.saved_without_ddp,
    files.saved_complete,
    files.last_epoch_saved,
]
_END = [processes.left_the_group, processes.ends_well]

OF = {
    "multigpu": [
        processes.is_python,
        processes.one_process_each,
        processes.joined,
        processes.port_of_its_own,
        processes.device_of_its_own,
        training.stay_equal,
        training.gradient_is_mean,
        *_TRAINING,
        files.saved_once,
        *_SAVING,
        *_END,
    ],
    "multigpu_torchrun": [
        processes.is_python,
        processes.started_by_torchrun,
        processes.joined,
        processes.device_of_its_own,
        training.gradient_is_mean,  # or weights could not tell what a restart resumed
        resume.where_saved,
        resume.with_the_optimizer,
        training.stay_equal,
        *_TRAINING,
        files.saved_once,
        *_SAVING,
        processes.cause_is_named,
        *_END,
    ],
    "multinode": [
        processes.is_python,
        processes.one_process_each,
        processes.joined,
        processes.device_of_its_own,
        training.gradient_is_mean,
        files.saved_on_every_node,
        resume.from_the_newest,
        resume.with_the_optimizer,
        training.stay_equal,
        *_TRAINING,
        *_SAVING,
        *_END,
    ],
}
ON_FAILURE = [processes.ends_when_a_rank_fails]
EXTRA = {"survives-a-power-cut": files.survives_a_power_cut}  # of an exercise alone
