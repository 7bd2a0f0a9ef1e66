"""The facts that the probe writes and the rules read: each kind, and its fields.

A fact is a JSON object with `kind`, `t` (seconds of a clock that all processes share) and `pid`.
One that may wait for other ranks has the number of the `call`. `where` is a line of the user's own
files, `file.py:12`. File paths are relative to the run's folder. The observer, whose pid is 0, adds
some kinds.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """`fields` are in each fact of this kind, `maybe` in some."""

    meaning: str
    fields: frozenset[str] = frozenset()
    maybe: frozenset[str] = frozenset()

def _kind(meaning, fields="", maybe=""):
    return Kind(meaning, frozenset(fields.split()), frozenset(maybe.split()))


REPLICA = "parameters gradient state"  # sorted fingerprints of the tensors of one optimizer

KINDS = {
    # processes
    "process": _kind(
        "a Python began; port: MASTER_PORT; its ranks in os.environ",
        "parent argv attempt act node torchrun port",
        "rank local_rank world_size local_world_size",
    ),
    "chosen": _kind("set_device was called", "index where"),
    "bound": _kind("a socket was bound to a port: 0 lets the system choose one", "port"),
    "raised": _kind(
        "an exception ended a process; cause: the first of those that led to it",
        "type message where cause",
    ),
    "said": _kind("a line on stdout; backwards: passes until then", "text backwards"),
    "logged": _kind("a line on stderr", "text backwards"),
    "fault": _kind("the failure that the doctor itself caused"),
    "unobserved": _kind("a part of torch that the probe cannot watch", "part error"),
    "exit": _kind(
        "the process ended; status: None for the usual end; cause: @record wrote it; spent: seconds"
        " in the probe",
        "status cause counts spent seconds",
    ),
    # process groups
    "joining": _kind(
        "init_process_group began; address: of tcp://; files: the user's, which are loaded",
        "port address files where",
    ),
    "joined": _kind("it returned", "rank world_size backend"),
    "left": _kind("destroy_process_group returned"),
    "collective": _kind(
        "a collective call began; what: its name, or DDP for the constructor; part: of the ranks,"
        " or in another thread; alone: of one rank; inside: a forward pass",
        "what bytes part alone inside where",
    ),
    "sharded": _kind("fully_shard has sharded a module; alone: among one rank", "alone where"),
    "split": _kind(
        "FSDP or parallelize_module (what) has divided a module; alone: among one rank",
        "what alone where",
    ),
    "declared": _kind(
        "before forward pass n: the first input of a layer that these ranks split, if a DTensor is"
        " made of it that has it to be equal on them",
        "n ranks print",
    ),
    "done": _kind(
        "a collective, a backward pass, a constructor of DDP, a call of a store or of a Barrier"
        " returned",
        maybe="what",
    ),
    "dropped": _kind("an asynchronous collective was called, and its handle thrown away", "where"),
    "resummed": _kind("an all_reduce got the sum that the last one had left, and more", "where"),
    "labels": _kind(
        "call n of an all_reduce of few numbers in this line; own: texts, lists of texts and keys"
        " in the variables there",
        "n where own",
    ),
    "untied": _kind("FSDP shards a parameter that an earlier unit has sharded, too", "where"),
    "peer": _kind("a tensor was sent to one rank, or received; inside: a forward pass", "inside"),
    # passes
    "replicated": _kind(
        "DDP wraps a model; unused: it looks for unused parameters; ignored: how many it ignores;"
        " names: of parameters and buffers, in order",
        "unused through ignored names where",
    ),
    "forward": _kind(
        "a model's input; rows, inputs: fingerprints of the first rows and of all inputs; through:"
        " the class called; sync: DDP will reduce gradients; live: as of an evaluation; loader: of"
        " the last batch",
        "n rows inputs samples through sync where loader live",
    ),
    "bypass": _kind("a pass of a model that DDP wraps, but not through DDP", "through where"),
    "evaluation": _kind(
        "a pass without gradients; live: the classes of dropout or batch statistics that are on;"
        " loader: of the last batch, if few such passes came since a backward pass",
        "live through loader where",
    ),
    "averages": _kind("the BatchNorm statistics of evaluation number n", "n prints where"),
    "fresh": _kind(
        "at the end, of an evaluation with BatchNorm layers (norms: how many) that no batch had"
        " reached, nor has since; steps: until then",
        "norms through steps where",
    ),
    "causality": _kind(
        "the targets are the inputs shifted by one; moved: by how much the last token changed"
        " earlier outputs",
        "moved scale where",
    ),
    "backward": _kind("a backward pass began; of a process alone, not of each", "where"),
    "losses": _kind("of backward passes, from number `first`, if there are ranks", "first values"),
    "moved": _kind(
        "averages of the weights, by description, moved between two backward passes of step 2",
        "names where",
    ),
    "graphs": _kind(
        "at a step, all graphs of the first steps are alive; names: of variables that lead to"
        " them, each with the first line of its function and its type",
        "step graphs names where",
    ),
    # optimizers
    "first": _kind(
        "before an optimizer's first step; numbers: of its parameters; halves: with --restart",
        f"opt type {REPLICA} rates sharded tensor_parallel numbers where halves",
    ),
    "before": _kind("before step n; with --restart and the like", "opt n parameters rates"),
    "beside": _kind(
        "before that step of all; with --restart; held: by description, the tensors of each model,"
        " dict or list that no optimizer has",
        "step held",
    ),
    "step": _kind(
        "after step n; norm: of the gradient; without: names of parameters without one; reached: a"
        " number that the fingerprints look at has a gradient; through, in_train_mode: of the last"
        " forward pass; each: the fingerprints of each parameter and of its gradient; passes: since"
        " the last step, of each DDP object, those in no_sync and others, whether the last was"
        " synced, and a line of no_sync",
        f"opt n type {REPLICA} rates each passes norm without reached backwards where loader"
        " through in_train_mode",
    ),
    "buffers": _kind(
        "after step n: of those of the model's state_dict that are near to what they were before",
        "opt n prints",
    ),
    "rewound": _kind(
        "step n drew the random numbers of an earlier one; where: the last seed",
        "opt n earlier where",
    ),
    "named": _kind(
        "the parameters of an optimizer, in order: name; model, number and line of its DDP object;"
        " how that has it: reduced, frozen when it was wrapped, added since, outside, or, without"
        " DDP, a part of FSDP's or ignored by it; a line that added or unfroze it",
        "opt parameters",
    ),
    "changed": _kind("weights changed between step n and the next", "opt n"),
    "written": _kind("a later such change", "opt where"),
    "judged": _kind("ReduceLROnPlateau got metric n", "n value where"),
    "prepared": _kind("the first step only made state, into which another one was loaded", "opt"),
    "last": _kind(
        "at the end; made: the steps of each optimizer; ends: the parameters of each of the last;"
        " moved: those whose parameters were written to since their last step;"
        " windows: an optimizer, backward passes between two steps, those since zero_grad, whether"
        " an iteration over a loader ended meanwhile, and how often",
        f"opt {REPLICA} steps made ends moved windows",
    ),
    "scheduled": _kind(
        "at the end, of a scheduler; where: it was made; steps: of its optimizer; early: calls"
        " before the first of these, and the line of one; changed, lowest:"
        " the steps until its rate changed last, and was lowest; low, top: rates; numbers: whole"
        " ones that it has",
        "type where calls early steps changes changed lowest low top rate numbers",
    ),
    "cleared": _kind("zero_grad cleared what a backward pass had left for a step", "where"),
    "clipped": _kind("gradients were clipped while they were scaled", "scale where"),
    "norm": _kind("clipping number n found this norm; most: the limit", "n value most where"),
    "projected": _kind(
        "the gradient of a step, with --parity: of each parameter its name and a sketch, and one"
        " before clipping; parts: of this rank's shards, so the sums over the ranks count; outputs:"
        " of modules, by name: rows, the shape of one, and a sketch of the sum; losses: of its"
        " backward passes",
        "names projections unclipped parts outputs losses where batch_norm",
    ),
    "mapped": _kind("what --cpu or --parity has replaced", "what"),
    # data
    "loader": _kind("an iteration over a DataLoader began"),
    "loading": _kind(
        "what that loader is; made: a line; base: the number of the dataset below its Subsets;"
        " subset: a file of indices; cut: a line that made a Subset; lists: sketches of those in"
        " the dataset; orders: of lists and dicts in it, checksums of items and order; divides: the"
        " sampler has this rank; draws: one of the script's own draws an order",
        "loader nth where made dataset base size subset iterable lists sampler replicas rank seed"
        " divides shuffle draws cut drop_last replacement epoch batch_size orders",
    ),
    "epoch": _kind(
        "an iteration ended; order: a checksum of the indices, which are in `file`; did: what was"
        " done with its batches; backwards: passes that began meanwhile",
        "loader nth drawn taken whole order where did backwards file",
    ),
    "draws": _kind(
        "a worker's fetch n of an epoch used random numbers; states: of the generators that it"
        " moved, afterwards",
        "loader nth worker n states",
    ),
    "drawn": _kind(
        "a line drew random numbers (of: their distribution) after a step; inside: a forward pass",
        "of step inside shape print where",
    ),
    "outdated": _kind(
        "persistent workers have a copy of the dataset with other values of these attributes",
        "loader nth dataset names where",
    ),
    "together": _kind(
        "several workers have read files that the dataset held open, in these attributes",
        "loader names workers made",
    ),
    "content": _kind("fingerprints of samples, by index", "loader nth indices rows"),
    "yielded": _kind("a batch of samples without an index", "loader nth workers print"),
    "cut": _kind("all_gather got a tensor that requires a gradient, and gives none", "where"),
    # files
    "saved": _kind(
        "path: None for memory; content: tensors and whole numbers, with key and path; names: of"
        " the model's state_dict; weights: the share of those of one optimizer; halves: their"
        " fingerprints, if they are halves there; parts: of each of the last optimizers, the shares"
        " of its weights and state, and its tensors of state (kept); made: the steps of each;"
        " shards: tensors of which it has this rank's part; together: by all ranks; gpus: where"
        " tensors are; thread: not the main one;"
        " caller: a line of another file",
        "path existed together thread content names weights halves parts made step where caller"
        " gpus shards",
    ),
    "loaded": _kind(
        "path: None for memory; behind: the file behind a link; error: of torch.load, which the"
        " script may catch; gpus: to which it put tensors; None if not where they had been",
        "path behind step where error",
        "gpus",
    ),
    "restored": _kind(
        "load_state_dict left keys out; given, wanted: keys of the file, of the model; matched: of"
        " both; renamed: that differ by a prefix; numbers: of the model; missing, unexpected: one",
        "model type given matched wanted renamed numbers missing unexpected where",
    ),
    "own": _kind(
        "load_state_dict got the model's own tensors, which `where` had kept after step `taken`",
        "taken step where",
    ),
    "opened": _kind(
        "a file to write to; existed: and it is written anew", "path existed where"
    ),
    "removed": _kind("a file was deleted", "path"),
    "elsewhere": _kind("a file to write to, outside the user's folders and caches", "path"),
    "renamed": _kind("synced: fsync came before", "source path synced"),
    "copied": _kind("shutil copied a file", "source path"),
    # of the observer
    "act": _kind("commands start", maybe="asked"),
    "ended": _kind("a command ended", "status act"),
    "hung": _kind("all ranks wait for each other; alive: process ids", "limit alive"),
    "late": _kind(
        "the run reached a limit, or the user interrupted it; idle: seconds without work or writes",
        "limit alive", "idle",
    ),
    "stack": _kind(
        "the stacks of a process that was ended, also of a loader's worker", "of text", "parent"
    ),
    "leftover": _kind("a process that still ran when the command had ended", "of"),
    "output": _kind("the last lines that a command printed", "node text"),
}  # fmt: skip
