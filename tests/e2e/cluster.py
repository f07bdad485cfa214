"""Runs a job in real processes on this host: a coordinator, more servers, and workers."""
import os
import select
import subprocess
import time

from lab import Deadline


class JobFailed(Exception):
    """The output of the processes and their exit codes."""


class Cluster:
    """The processes of one job. `folder`: their working directory, with a log file for each process."""

    def __init__(self, bin_dir, folder, environment=None):
        self.bin_dir = os.path.abspath(bin_dir)
        self.folder = folder
        # the caller's PUSHPULL_ variables would become part of the job; this one says where libraries are
        self.environment = {key: value for key, value in os.environ.items()
                            if not key.startswith("PUSHPULL_") or key == "PUSHPULL_CUDA_LIBS"}
        self.environment["XDG_CONFIG_HOME"] = f"{folder}/config"  # keeps the user's keys out
        self.environment.update(environment or {})
        self.processes = []

    def run(self, job, servers=1, workers=1, out="pushpull-out", timeout_s=60,
            worker_flags=()):
        """Runs a job. job: key -> value. Returns the path of the output folder after all processes exit with
        0."""
        deadline = Deadline(timeout_s)
        with open(f"{self.folder}/job.ini", "w") as file:
            file.writelines(f"{key} = {value}\n" for key, value in job.items())
        try:
            address = self._coordinate(servers, workers, out)
            for _ in range(servers - 1):
                self._start("pushpull-server", ["--join", address])
            for _ in range(workers):
                self._start("pushpull-worker", ["--join", address, *worker_flags])
            self._wait(deadline)
        finally:
            for process, _ in self.processes:
                process.kill()
                process.wait()
            self.processes = []
        return f"{self.folder}/{out}"

    def _coordinate(self, servers, workers, out):
        reader, writer = os.pipe()
        try:
            self._start("pushpull-server",
                        ["--job", "job.ini", "--listen", "tcp://127.0.0.1:*", "--out", out,
                         "--servers", str(servers), "--workers", str(workers),
                         "--announce-fd", str(writer)], pass_fds=[writer])
        finally:
            os.close(writer)
        with os.fdopen(reader) as announced:
            ready, _, _ = select.select([announced], [], [], 300)
            address = announced.readline().strip() if ready else ""
        if not address:
            raise JobFailed(f"the coordinator announced no address: {self._cause(self.processes[0][1])}\n" + self._logs())
        return address

    def _start(self, program, arguments, pass_fds=()):
        path = f"{self.folder}/{program}-{len(self.processes)}.log"
        with open(path, "w") as log:
            process = subprocess.Popen([f"{self.bin_dir}/{program}", *arguments], cwd=self.folder,
                                       env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=subprocess.STDOUT, pass_fds=pass_fds)
        self.processes.append((process, path))

    def _wait(self, deadline):
        """Returns when all processes have ended with 0. The first that fails ends the job: others would wait for it."""
        running = list(self.processes)
        while running:
            for process, path in list(running):
                code = process.poll()
                if code is None:
                    continue
                running.remove((process, path))
                if code != 0:
                    raise JobFailed(f"{path}: exit code {code}: {self._cause(path)}\n" + self._logs())
            if deadline.passed():
                raise JobFailed(f"{running[0][1]}: still running\n" + self._logs())
            time.sleep(0.02)

    @staticmethod
    def _cause(path):
        """Returns the first line with an error of a log, or its last."""
        with open(path, errors="replace") as file:
            lines = file.read().splitlines()
        return next((line for line in lines if "error: " in line), lines[-1] if lines else "no output")

    def _logs(self):
        out = ""
        for _, path in self.processes:
            with open(path) as file:
                out += f"--- {path}\n{file.read()}"
        return out
