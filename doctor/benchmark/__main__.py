"""python -m benchmark [KIND or part of a NAME ...]: run the cases, and count what is found.

Run it in the folder doctor/ of a clone. --tool keeps what another tool prints, for you to judge:
write the verdicts into results/TOOL.json, as those of ddp-doctor are.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import recordings
from benchmark.cases import all_cases, results, score, write_results
from ddp_doctor.diagnosis import diagnosed
from diagnosing import environment
from examples import EXAMPLES


def main():
    parser = argparse.ArgumentParser(prog="benchmark", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("parts", nargs="*", metavar="KIND|NAME")
    parser.add_argument("--recorded", action="store_true", help="judge the recorded facts")
    parser.add_argument("--update", action="store_true", help="expect in tests what is found now")
    parser.add_argument("--tool", metavar="COMMAND", help="such as 'torch-preflight {script}'")
    parser.add_argument("--output", type=Path, default=Path("benchmark-output"), metavar="FOLDER")
    options = parser.parse_args()
    os.environ.update(environment())
    chosen = [case for case in all_cases() if not options.parts or _is_chosen(case, options.parts)]
    if options.tool:
        return [_keep(options, case) for case in chosen]
    before, found = results(), {}
    for case in chosen:
        found[case.name] = one = _judged(case, options)
        was = before["cases"].get(case.name, one)
        changed = f"  (was: {was['verdict']}, twin {was['twin']})" if was != one else ""
        print(f"{one['verdict']:7} {case.name}: {one['said']}; twin {one['twin']}{changed}",
              flush=True)  # fmt: skip
        if options.update:
            write_results("ddp-doctor", {case.name: one})
    print(f"\n{'':12} cases  named  half  missed  false words")
    for kind, *numbers in score(found):
        print("{:12} {:5}  {:5}  {:4}  {:6}  {:11}".format(kind, *numbers))


def _is_chosen(case, parts):
    return any(part == case.kind or part in case.name for part in parts)


def _judged(case, options):
    wrong, right = (one for one in EXAMPLES if one.case == case)
    findings, twin = (_findings(one, options) for one in (wrong, right))
    told = [f"{one.rule.name} {(one.where or '').partition(':')[2]}".strip() for one in findings]
    false = sorted({one.rule.name for one in twin if one.rule.severity != "note"})
    return {"verdict": case.verdict(findings), "said": told, "twin": false}


def _findings(example, options):
    if options.recorded:
        one = recordings.read(example)
        one.judge()
        return one.findings
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(example.files["train.py"])
        os.chdir(folder)
        try:
            plan, own = example.plan, {"cpu": example.cpu, "limit": example.limit}
            with diagnosed([*example.words], plan, **own) as one:
                if options.update:
                    recordings.write(example, one)
                return one.findings
        finally:
            os.chdir(home)


def _keep(options, case):
    """Run another tool on both scripts. `{script}` is the file's path."""
    for name, text in (("wrong", case.wrong), ("right", case.right)):
        folder = options.output.resolve() / case.name.replace("/", "_") / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.py").write_text(text)
        command = [word.format(script="train.py") for word in shlex.split(options.tool)]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
        (folder / "output.txt").write_text(f"{ran.stdout}{ran.stderr}\nstatus {ran.returncode}\n")
        print(f"{case.name}, {name}: {folder / 'output.txt'}")


if __name__ == "__main__":
    main()
