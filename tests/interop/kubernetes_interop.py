#!/usr/bin/env python3
"""examples/kubernetes: the commands are weft's, and (FULL=1) the official client knows every field of the Job.

    kubernetes_interop.py --weft build/weft

The client reads a manifest into its own types and writes it again: a field that it does not know would be gone. The
JobSet's types are not in the client; only its commands are compared with the Job's.
"""

import json
import re
import subprocess

import yaml

from common import Weft, run_program
from sampling import ROOT, is_full

FOLDER = ROOT / "examples/kubernetes"
CLIENT = """
import json, sys
from kubernetes import client
api = client.ApiClient()
for document in json.load(sys.stdin):
    read = api.deserialize(json.dumps(document), "V1" + document["kind"], "application/json")
    print(json.dumps(api.sanitize_for_serialization(read) == document))
"""


def containers(document):
    """Every container below any key."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from value if key == "containers" else containers(value)
    elif isinstance(document, list):
        for value in document:
            yield from containers(value)


def check_commands(checks, weft, name, documents):
    script = next(containers(documents))["args"][0]
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    checks.equal(done.returncode, 0, f"{name}: the script is one")
    known = (ROOT / "docs/keys.md").read_text()
    keys = re.findall(r"--set (\S+?)=", script)
    checks.that(keys and all(f"`{key}`" in known for key in keys), f"{name}: keys that exist", " ".join(keys))
    for command, words in re.findall(r"weft (\w+) ((?:[^\n\\]|\\\n)*)", script):
        options = set(re.findall(r"--[a-z-]+", words))
        text = weft.call(command, "--help")
        missing = [option for option in options if option not in text]
        checks.that(not missing, f"{name}: weft {command} has its options", " ".join(missing))
    return script


def check_client(checks, documents):
    python = subprocess.run([ROOT / "tools/setup.sh", "kubernetes"], text=True, capture_output=True, check=True).stdout.strip()

    def known(all_documents):
        done = subprocess.run([python, "-c", CLIENT], input=json.dumps(all_documents), text=True, capture_output=True,
                              timeout=120, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    checks.equal(known(documents), [True] * len(documents), "job.yaml: the client knows every field")
    wrong = json.loads(json.dumps(documents).replace('"parallelism"', '"paralelism"'))
    checks.equal(known(wrong), [True, False], "job.yaml: it finds a misspelt one")


def body(args, checks, _folder):
    weft = Weft(args.weft)
    job = list(yaml.safe_load_all((FOLDER / "job.yaml").read_text()))
    jobset = list(yaml.safe_load_all((FOLDER / "jobset.yaml").read_text()))
    script = check_commands(checks, weft, "job.yaml", job)
    other = check_commands(checks, weft, "jobset.yaml", jobset)
    checks.equal(other.replace("weft-nodes-0-0.weft", "weft-0.weft"), script, "both run the same commands")
    nodes = re.search(r"--nodes (\d+)", script).group(1)
    checks.equal(job[1]["spec"]["completions"], int(nodes), "as many pods as nodes")
    if is_full():
        check_client(checks, job)


if __name__ == "__main__":
    run_program(__doc__, body)
