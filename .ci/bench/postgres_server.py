"""A PostgreSQL server of a benchmark's own, with the settings that PostgreSQL comes with."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


def programs() -> Path | None:
    """The folder of the server's programs; of several the newest version's."""
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    folders = sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    if shutil.which("pg_config"):
        told = subprocess.run(["pg_config", "--bindir"], check=True, capture_output=True, text=True).stdout.strip()
        folders.insert(0, Path(told))
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """Keeps its data in `folder`, which stays; yields the URL of the database `history`, empty where the folder is new."""
    bin_folder = programs()
    if bin_folder is None:
        raise SystemExit("PostgreSQL's programs are not installed; `.ci/run system` installs them")
    # The server refuses to be root.
    switch = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []

    def run(name: str, *arguments: object) -> None:
        command = [*switch, bin_folder / name, *arguments]
        subprocess.run([str(part) for part in command], check=True, cwd="/", stdout=subprocess.DEVNULL)

    # A socket's path may be 107 bytes long.
    sockets = Path(tempfile.mkdtemp(prefix="modelfarm-postgres-"))
    data = folder / "data"
    is_new = not data.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if switch:
        for path in (sockets, folder):
            os.chown(path, NOBODY, NOBODY)
    try:
        if is_new:
            run("initdb", "--pgdata", data, "--username=modelfarm", "--auth=trust", "--encoding=UTF8", "--locale=C")
        run("pg_ctl", "start", "-w", "-D", data, "-l", folder / "log", "-o", f"-k {sockets} -c listen_addresses=''")
        try:
            if is_new:
                run("createdb", "--host", sockets, "--username=modelfarm", "history")
            yield f"postgres://modelfarm@localhost/history?host={sockets}"
        finally:
            run("pg_ctl", "stop", "-w", "-m", "fast", "-D", data)
    finally:
        shutil.rmtree(sockets, ignore_errors=True)


def vacuum(url: str) -> None:
    """What the server does by itself within minutes: statistics, and which pages an index need not look up."""
    bin_folder = programs()
    sockets = url.split("host=")[1]
    command = [bin_folder / "vacuumdb", "--quiet", "--analyze", "--host", sockets, "--username=modelfarm", "history"]
    subprocess.run([str(part) for part in command], check=True)
