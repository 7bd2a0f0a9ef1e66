"""What the pages are made of besides prose: commands that the build runs, notebooks, edits.

    shell.py       shell lines run in a copy of the scripts, and what they printed
    directives.py  the directives in a page's text
    runs.py        which commands the pages show, and what their output must be
    keys.py        on which files a command depends
    recordings.py  what the commands printed, in docs/recorded
    record.py      runs and records them, or checks that the recordings hold
    torch_docs.py  where PyTorch's documentation describes a name
    ends.py        what the end of a page lists
    notebook.py    a page as a notebook that runs anywhere
    confirm.py     which text of an edit its prose was written for
"""
