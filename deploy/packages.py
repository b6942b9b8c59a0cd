#!/usr/bin/env python3
"""Packs built programs for npm, PyPI and Debian, and writes the bill of materials. Called by release.sh.

No package downloads anything when it is installed. Every archive has the time SOURCE_DATE_EPOCH and no owner, so the same
programs give the same bytes.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
NPM_CPU = {"x86_64": "x64", "aarch64": "arm64"}
DEBIAN_CPU = {"x86_64": "amd64", "aarch64": "arm64"}
SUMMARY = "Runs agent-written TypeScript in a sandbox, with your permission rules on every tool call"

SHIM = """#!/usr/bin/env node
"use strict";
const { spawn } = require("node:child_process");

let program;
try {
  program = require.resolve(`@casys/pml-${process.platform}-${process.arch}/pml`);
} catch {
  console.error(`pml: there is no build for ${process.platform}-${process.arch}, or npm left out optional dependencies`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => { console.error(`pml: ${error.message}`); process.exit(1); });
child.on("exit", (code, signal) => { signal ? process.kill(process.pid, signal) : process.exit(code); });
"""


def tar_gz(members):
    """Returns a .tar.gz of (name, bytes, mode)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content, mode in members:
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(content), mode, EPOCH
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), compresslevel=level(), mtime=0)


def level():
    return int(os.environ.get("PML_RELEASE_LEVEL", "9"))


def npm(out, version, machine, program, readme):
    cpu = NPM_CPU[machine]
    common = {"version": version, "description": SUMMARY, "license": "Apache-2.0"}
    platform = {
        "name": f"@casys/pml-linux-{cpu}", **common, "os": ["linux"], "cpu": [cpu], "libc": ["glibc"],
        "files": ["pml"],
    }
    meta = {
        "name": "@casys/pml", **common, "bin": {"pml": "pml.js"}, "files": ["pml.js"], "engines": {"node": ">=18"},
        "optionalDependencies": {f"@casys/pml-linux-{name}": version for name in sorted(NPM_CPU.values())},
    }
    for manifest, files in (
        (platform, [("package/pml", program, 0o755)]),
        (meta, [("package/pml.js", SHIM.encode(), 0o755), ("package/README.md", readme, 0o644)]),
    ):
        name = manifest["name"].removeprefix("@").replace("/", "-")
        text = (json.dumps(manifest, indent=2) + "\n").encode()
        packed = tar_gz([("package/package.json", text, 0o644), *files])
        (out / f"{name}-{version}.tgz").write_bytes(packed)


def glibc(program):
    """Returns the newest version of glibc that a program needs."""
    found = {tuple(map(int, match)) for match in re.findall(rb"GLIBC_(\d+)\.(\d+)", program)}
    return max(found)


def wheel(out, version, machine, program, readme):
    major, minor = glibc(program)
    tag = f"py3-none-manylinux_{major}_{minor}_{machine}"
    info = f"pml_cli-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.4\nName: pml-cli\nVersion: {version}\nSummary: {SUMMARY}\nLicense-Expression: Apache-2.0\n"
        f"Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n"
    ).encode() + readme
    files = {
        f"pml_cli-{version}.data/scripts/pml": (program, 0o755),
        f"{info}/METADATA": (metadata, 0o644),
        f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: pml\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644),
    }

    def digest(content):
        return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

    lines = [f"{name},sha256={digest(content)},{len(content)}\n" for name, (content, _) in files.items()]
    files[f"{info}/RECORD"] = ("".join([*lines, f"{info}/RECORD,,\n"]).encode(), 0o644)
    # The times of a ZIP begin in 1980.
    moment = max(EPOCH, 315532800)
    import time

    date = time.gmtime(moment)[:6]
    with zipfile.ZipFile(out / f"pml_cli-{version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=level()) as archive:
        for name, (content, mode) in files.items():
            member = zipfile.ZipInfo(name, date)
            member.external_attr, member.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(member, content, compresslevel=level())


def deb(out, version, machine, name, program, folder, extra):
    """Writes a Debian package: an `ar` archive of three members (deb(5))."""
    major, minor = glibc(program)
    control = (
        f"Package: {name}\nVersion: {version}\nArchitecture: {DEBIAN_CPU[machine]}\nMaintainer: Casys <pml@casys.ai>\n"
        f"Installed-Size: {len(program) // 1024}\nDepends: libc6 (>= {major}.{minor})\nSection: devel\nPriority: optional\n"
        f"Homepage: https://pml.casys.ai\nDescription: {SUMMARY}\n"
    ).encode()
    parts = [(f"./usr/{folder}/{name}", program, 0o755), *extra]
    folders = sorted({str(parent) for path, _, _ in parts for parent in Path(path[2:]).parents} - {"."})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in [".", *folders]:
            info = tarfile.TarInfo("./" if path == "." else f"./{path}/")
            info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, EPOCH
            archive.addfile(info)
        for path, content, mode in parts:
            info = tarfile.TarInfo(path)
            info.size, info.mode, info.mtime = len(content), mode, EPOCH
            archive.addfile(info, io.BytesIO(content))
    data = gzip.compress(packed.getvalue(), compresslevel=level(), mtime=0)
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", tar_gz([("./control", control, 0o644)])),
        ("data.tar.gz", data),
    ]
    with open(out / f"{name}_{version}_{DEBIAN_CPU[machine]}.deb", "wb") as file:
        file.write(b"!<arch>\n")
        for member, content in members:
            file.write(f"{member:<16}{EPOCH:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
            file.write(content + b"\n" * (len(content) % 2))


def bill_of_materials(out, root, version, package, program):
    """Writes the crates that a program is built from, as CycloneDX 1.6."""
    ran = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", "x86_64-unknown-linux-gnu"],
        cwd=root, check=True, capture_output=True, text=True,
    )
    known = json.loads(ran.stdout)
    packages = {entry["id"]: entry for entry in known["packages"]}
    nodes = {node["id"]: node for node in known["resolve"]["nodes"]}
    start = next(entry["id"] for entry in known["packages"] if entry["name"] == package and entry["source"] is None)
    reached, open_ids = set(), [start]
    while open_ids:
        current = open_ids.pop()
        if current in reached:
            continue
        reached.add(current)
        for dependency in nodes[current]["deps"]:
            # Not those of tests.
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                open_ids.append(dependency["pkg"])
    lock = (root / "Cargo.lock").read_text()
    hashes = dict(
        ((name, found), checksum)
        for name, found, checksum in re.findall(
            r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]+"\nchecksum = "([0-9a-f]{64})"', lock
        )
    )
    components = []
    for entry in sorted((packages[item] for item in reached - {start}), key=lambda entry: (entry["name"], entry["version"])):
        component = {
            "type": "library", "name": entry["name"], "version": entry["version"],
            "purl": f"pkg:cargo/{entry['name']}@{entry['version']}",
        }
        if entry["license"]:
            component["licenses"] = [{"expression": entry["license"].replace("/", " OR ")}]
        if checksum := hashes.get((entry["name"], entry["version"])):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    bill = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": {"type": "application", "name": program, "version": version}},
        "components": components,
    }
    (out / f"{program}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")


def main():
    options = argparse.ArgumentParser()
    for name in ("root", "bin", "out"):
        options.add_argument(f"--{name}", type=Path, required=True)
    for name in ("version", "machine"):
        options.add_argument(f"--{name}", required=True)
    options = options.parse_args()
    out, version, machine, root = options.out, options.version, options.machine, options.root
    readme = (root / "README.md").read_bytes()
    pml, server = ((options.bin / name).read_bytes() for name in ("pml", "pml-server"))
    npm(out, version, machine, pml, readme)
    wheel(out, version, machine, pml, readme)
    deb(out, version, machine, "pml", pml, "bin", [])
    unit = (root / "deploy/pml-server.service").read_bytes().replace(b"/usr/local/bin/", b"/usr/bin/")
    deb(out, version, machine, "pml-server", server, "bin", [("./usr/lib/systemd/system/pml-server.service", unit, 0o644)])
    bill_of_materials(out, root, version, "client-cli", "pml")
    bill_of_materials(out, root, version, "server", "pml-server")


if __name__ == "__main__":
    main()
