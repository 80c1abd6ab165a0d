"""The process behind the `processes` engine: reads jobs from standard input, writes their cells."""

import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import TextIO


def main() -> None:
    """Do what each line asks, and answer each with a line. Ends at once when the other side does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which ends us
    # What models print must not mix with the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, requests), daemon=True).start()
    while True:
        print(json.dumps({"status": _do(json.loads(requests.get()))}), file=answers, flush=True)


def _listen(lines: TextIO, requests: "queue.SimpleQueue[str]") -> None:
    for line in lines:
        requests.put(line)
    os._exit(0)  # the coordinator is gone, whatever happened to it


def _do(request: dict) -> str:
    from ...scale.compilation_cache import keep_compiled
    from ..jobs import CellJob
    from ..precompile import precompile
    from ..run_cell import run_cell
    from ..store import Store

    keep_compiled()
    jobs = [CellJob.from_json(values) for values in request["jobs"]]
    if request["do"] == "precompile":
        precompile(jobs)
        return "ready"
    record = run_cell(jobs[0])
    Store(Path(request["store"])).write(record)
    return record.status


if __name__ == "__main__":
    main()
