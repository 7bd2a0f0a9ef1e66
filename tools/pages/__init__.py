"""What the pages are made of besides prose: commands really run, notebooks, confirmed edits.

    shell.py       shell lines run in a copy of the scripts, and what they printed
    directives.py  the directives in a page's text
    lessons.py     the lessons that pages show
    notebook.py    a page as a notebook that runs wherever it lies
    confirm.py     which text of an edit its prose was written for
"""
