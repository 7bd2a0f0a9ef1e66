"""The checks, in the order in which a learner should fix them."""

from dataclasses import replace

from . import (
    after_restart,
    equal_weights,
    gpt,
    group,
    printed_loss,
    saving,
    sharding,
    shares,
    variations,
)

LESSONS = ("multigpu", "multigpu_torchrun", "multinode")
BEYOND = {  # a lesson of beyond/ with exercises: which of multinode's checks do not hold of it
    "explicit_gradients": [],
    "scale_lr": [],
    "zero": [],
    "uneven": [group.all_take_part, equal_weights.stay_equal, equal_weights.gradient_is_mean,
               printed_loss.is_global, saving.saved_complete],
    "local_sgd": [equal_weights.stay_equal, equal_weights.gradient_is_mean, saving.saved_complete,
                  saving.last_epoch_saved],
    "random_seed_offset": [shares.shared],
}  # fmt: skip
RESUMES = [
    after_restart.from_the_newest, after_restart.where_saved, after_restart.with_the_optimizer,
]  # fmt: skip
ORDER = [
    group.is_python, group.one_process_each, group.started_by_torchrun,
    group.joined, group.port_of_its_own, group.device_of_its_own, shares.full_batches,
    variations.rate_grows, variations.state_is_divided, variations.trains_to_the_end,
    variations.trains_one_model, variations.averages_now_and_then, variations.draws_its_own,
    saving.saved_on_every_node, *RESUMES, group.all_take_part,
    equal_weights.stay_equal, equal_weights.gradient_is_mean, equal_weights.moved_before_ddp,
    shares.shared, shares.order_changes,
    printed_loss.reported_once, printed_loss.is_global,
    saving.saved_once, saving.saved_atomically, saving.saved_without_ddp,
    saving.last_epoch_saved, saving.saved_complete,
    group.cause_is_named, group.left_the_group, group.ends_well,
]  # fmt: skip
OF = {name: [one for one in ORDER if name in (one.lessons or LESSONS)] for name in LESSONS}
for name, without in BEYOND.items():
    OF[name] = [one for one in ORDER if name in one.lessons or one in OF["multinode"]]
    OF[name] = [one for one in OF[name] if one not in without]
OF["mingpt"] = [
    group.is_python, group.all_take_part, gpt.sends_once, equal_weights.stay_equal,
    gpt.same_gradient, gpt.prints_the_same, gpt.uses_the_scaler, gpt.saves_its_step,
    gpt.writes_as_often, group.left_the_group, group.ends_well,
]  # fmt: skip
OWN = {  # of a lesson of parallel/: a check for each edit, in order, and what these do not show
    "checkpoint_activations": [sharding.computes_again],
    "zero_by_hand": [
        sharding.keeps_its_state, sharding.keeps_its_gradients, sharding.keeps_its_weights,
        gpt.resumes,
    ],
    "fsdp": [
        sharding.keeps_its_weights, sharding.sends_its_sums, gpt.resumes,
    ],
    "hsdp": [sharding.sends_its_sums],
    "dcp": [
        sharding.saves_its_shards, sharding.saves_meanwhile, gpt.resumes,
        sharding.names_whole_folders, sharding.shares_metadata_last,
    ],
}  # fmt: skip
FIRST = [sharding.names_whole_folders]  # a folder that is deleted too early ends in a hang
AFTER_A_RESTART = [sharding.shares_metadata_last, gpt.resumes]
IN_EACH_RUN = [*AFTER_A_RESTART, sharding.sends_its_sums]
for name, own in OWN.items():
    early, late = ([one for one in own if one in some] for some in (FIRST, AFTER_A_RESTART))
    OF[name] = [
        group.is_python, *early, group.all_take_part,
        *(one for one in own if one not in early + late),
        sharding.reads_its_share, gpt.same_gradient, gpt.prints_the_same, *late,
        gpt.writes_as_often, group.left_the_group, group.ends_well,
    ]  # fmt: skip
for name in ("tensor_parallel", "two_dimensions", "pipeline", "context_parallel", "experts"):
    OF[name] = [
        group.is_python, group.all_take_part, gpt.same_gradient_together, gpt.prints_the_same,
        replace(sharding.keeps_its_weights, page="parallel_memory", edit=None),
        gpt.writes_as_often, group.left_the_group, group.ends_well,
    ]  # fmt: skip
WITH_THREE = [  # of the second run; in the end, one of its processes fails
    group.one_process_each, group.joined, equal_weights.stay_equal, equal_weights.gradient_is_mean,
    shares.shared, saving.saved_once, group.ends_when_a_rank_fails,
]  # fmt: skip
EXTRA = {"survives-a-power-cut": saving.survives_a_power_cut}  # of an exercise alone
