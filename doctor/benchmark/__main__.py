"""Run the benchmark, in the folder doctor/ of a clone: python -m benchmark [KIND|NAME ...]

--tool keeps what another tool prints, for you to judge: its results/TOOL.json is written by hand.
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
    parser = argparse.ArgumentParser(prog="benchmark", description=__doc__)
    add = parser.add_argument
    add("parts", nargs="*", metavar="KIND|NAME", help="a kind, or a part of a name")
    add("--recorded", action="store_true", help="judge the recorded facts")
    add("--update", action="store_true", help="expect in tests what is found now; record it")
    add("--tool", metavar="COMMAND", help="such as 'torch-preflight {script}'")
    add("--output", type=Path, default=Path("benchmark-output"), help="a folder, for --tool")
    options, found = parser.parse_args(), {}
    os.environ.update(environment())
    for case in all_cases():
        if options.parts and not any(p == case.kind or p in case.name for p in options.parts):
            continue
        if options.tool:
            _keep(options, case)
            continue
        found[case.name] = one = _judged(case, options)
        was = results()["cases"].get(case.name, {})
        changed = any(one[key] != was.get(key) for key in ("verdict", "twin"))
        print(f"{one['verdict']:7} {case.name}: {one['said']}; twin {one['twin']}",
              f"(was {was})" if changed else "", flush=True)  # fmt: skip
        if options.update:
            write_results("ddp-doctor", {case.name: one})
    for row in (("", "cases", "named", "half", "missed", "false words"), *score(found)):
        print("{:12} {:>6} {:>6} {:>6} {:>6} {:>12}".format(*row))


def _judged(case, options):
    wrong, right = (_findings(one, options) for one in EXAMPLES if one.case == case)
    told = [f"{one.rule.name} {(one.where or '').partition(':')[2]}".strip() for one in wrong]
    false = sorted({one.rule.name for one in right if one.rule.severity != "note"})
    return {"verdict": case.verdict(wrong), "said": told, "twin": false}


def _findings(example, options):
    if options.recorded:
        one = recordings.read(example)
        one.judge()
        return one.findings
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(example.files["train.py"])
        os.chdir(folder)
        try:
            own = {"cpu": example.cpu, "limit": example.limit}
            with diagnosed([*example.words], example.plan, **own) as one:
                if options.update:
                    recordings.write(example, one)
                return one.findings
        finally:
            os.chdir(home)


def _keep(options, case):
    for name, text in (("wrong", case.wrong), ("right", case.right)):
        folder = options.output.resolve() / case.name / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.py").write_text(text)
        command = [word.format(script="train.py") for word in shlex.split(options.tool)]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
        (folder / "output.txt").write_text(f"{ran.stdout}{ran.stderr}\nstatus {ran.returncode}\n")
        print(folder / "output.txt")


if __name__ == "__main__":
    main()
