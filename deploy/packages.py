#!/usr/bin/env python3
"""Packs built programs for npm, PyPI, Debian, Homebrew, desktop apps and editors. Called by release.sh.

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
import sys
import tarfile
import time
import urllib.parse
import zipfile
from pathlib import Path

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
NPM_CPU = {"x86_64": "x64", "aarch64": "arm64"}
DEBIAN_CPU = {"x86_64": "amd64", "aarch64": "arm64"}
ELF_MACHINE = {"x86_64": 62, "aarch64": 183}
OLDEST_GLIBC = (2, 17)
HOMEPAGE = "https://pml.casys.ai"
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
    """Returns the newest version of glibc that a program needs, at least the oldest one that wheels can name."""
    found = {tuple(map(int, match)) for match in re.findall(rb"GLIBC_(\d+)\.(\d+)", program)}
    return max(found | {OLDEST_GLIBC})


def check(name, program, machine, limit):
    """Refuses a program of another machine, and one that needs a newer glibc than a release promises."""
    # The header of ELF: its first bytes, and the machine.
    if program[:4] != b"\x7fELF" or int.from_bytes(program[18:20], "little") != ELF_MACHINE[machine]:
        raise SystemExit(f"packages.py: {name} is not a program for {machine}")
    if limit and glibc(program) > tuple(map(int, limit.split("."))):
        needs = ".".join(map(str, glibc(program)))
        raise SystemExit(f"packages.py: {name} for {machine} needs glibc {needs}, and a release promises {limit}")


def wheel(out, version, machine, program, readme):
    major, minor = glibc(program)
    platforms = [f"manylinux_{major}_{minor}_{machine}"]
    if (major, minor) == OLDEST_GLIBC:
        # The older name of the same (PEP 600), for older versions of pip.
        platforms.append(f"manylinux2014_{machine}")
    tag = f"py3-none-{'.'.join(platforms)}"
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in platforms)
    info = f"pml_cli-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.4\nName: pml-cli\nVersion: {version}\nSummary: {SUMMARY}\nLicense-Expression: Apache-2.0\n"
        f"Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n"
    ).encode() + readme
    files = {
        f"pml_cli-{version}.data/scripts/pml": (program, 0o755),
        f"{info}/METADATA": (metadata, 0o644),
        f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: pml\nRoot-Is-Purelib: false\n{tags}".encode(), 0o644),
    }

    def digest(content):
        return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

    lines = [f"{name},sha256={digest(content)},{len(content)}\n" for name, (content, _) in files.items()]
    files[f"{info}/RECORD"] = ("".join([*lines, f"{info}/RECORD,,\n"]).encode(), 0o644)
    write_zip(out / f"pml_cli-{version}-{tag}.whl", files)


def write_zip(path, files):
    """Writes a ZIP archive of {name: (bytes, mode)}."""
    # Its times begin in 1980.
    date = time.gmtime(max(EPOCH, 315532800))[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level()) as archive:
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
        f"Homepage: {HOMEPAGE}\nDescription: {SUMMARY}\n"
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


def formula(out, version, machines, url):
    """Writes the formula of Homebrew, for the tap of whoever releases."""
    processors = {"x86_64": "intel", "aarch64": "arm"}
    parts = []
    for machine in machines:
        packed = f"pml-{machine}-linux.gz"
        digest = hashlib.sha256((out / packed).read_bytes()).hexdigest()
        parts.append(
            f'  on_{processors[machine]} do\n    url "{url}/{version}/{packed}"\n    sha256 "{digest}"\n  end\n\n'
        )
    # Where there is no program for a processor, Homebrew says so before it downloads anything.
    only = "" if len(machines) > 1 else f"  depends_on arch: :{ {'x86_64': 'x86_64', 'aarch64': 'arm64'}[machines[0]] }\n"
    (out / "pml.rb").write_text(
        f'''# Homebrew, on Linux only: elsewhere programs cannot be sealed.
class Pml < Formula
  desc "{SUMMARY.replace('Runs', 'Run')}"
  homepage "{HOMEPAGE}"
  version "{version}"
  license "Apache-2.0"

{"".join(parts)}{only}  depends_on :linux

  def install
    bin.install Dir["pml-*"].first => "pml"
    generate_completions_from_executable(bin/"pml", "completions", shells: [:bash, :zsh, :fish])
  end

  test do
    assert_equal "pml #{{version}}", shell_output("#{{bin}}/pml --version").strip
    assert_equal "42", pipe_output("#{{bin}}/pml exec -", "return 6 * 7;").strip
  end
end
'''
    )


def bundle(out, version, machine, program, readme):
    """Writes the bundle for desktop apps (MCPB 0.3)."""
    manifest = {
        "manifest_version": "0.3", "name": "pml", "display_name": "PML", "version": version,
        "description": SUMMARY, "author": {"name": "Casys", "email": "pml@casys.ai", "url": HOMEPAGE},
        "homepage": HOMEPAGE, "license": "Apache-2.0", "keywords": ["programs", "sandbox", "permissions"],
        "server": {
            "type": "binary", "entry_point": "server/pml",
            "mcp_config": {
                "command": "${__dirname}/server/pml", "args": ["stdio", "--workspace", "${user_config.workspace}"],
            },
        },
        "tools_generated": True,
        "compatibility": {"platforms": ["linux"]},
        "user_config": {
            "workspace": {
                "type": "directory", "title": "Project folder", "required": True,
                "description": "Programs read and write files in this folder only, as its .pml.json allows.",
            },
        },
    }
    text = (json.dumps(manifest, indent=2) + "\n").encode()
    files = {
        "manifest.json": (text, 0o644), "server/pml": (program, 0o755), "README.md": (readme, 0o644),
    }
    write_zip(out / f"pml-{version}-linux-{machine}.mcpb", files)


def links(out):
    """Writes links that add an installed `pml` to an editor, when they are opened."""
    server = {"command": "pml", "args": ["stdio", "--workspace", "${workspaceFolder}"]}

    def code(scheme):
        named = json.dumps({"name": "pml", "type": "stdio", **server}, separators=(",", ":"))
        return f"{scheme}:mcp/install?{urllib.parse.quote(named, safe='')}"

    config = base64.b64encode(json.dumps(server, separators=(",", ":")).encode()).decode()
    found = {
        "vscode": code("vscode"),
        "vscode-insiders": code("vscode-insiders"),
        "cursor": "cursor://anysphere.cursor-deeplink/mcp/install?"
        + urllib.parse.urlencode({"name": "pml", "config": config}),
    }
    (out / "links.json").write_text(json.dumps(found, indent=2) + "\n")


def main():
    options = argparse.ArgumentParser()
    for name in ("root", "bin", "out"):
        options.add_argument(f"--{name}", type=Path, required=True)
    options.add_argument("--version", required=True)
    options.add_argument("--machines", nargs="+", choices=sorted(NPM_CPU), required=True)
    options.add_argument("--glibc")
    options = options.parse_args()
    out, version, root = options.out, options.version, options.root
    readme = (root / "README.md").read_bytes()
    unit = (root / "deploy/pml-server.service").read_bytes().replace(b"/usr/local/bin/", b"/usr/bin/")
    unit = [("./usr/lib/systemd/system/pml-server.service", unit, 0o644)]
    for machine in options.machines:
        pml, server = ((options.bin / machine / name).read_bytes() for name in ("pml", "pml-server"))
        for name, program in (("pml", pml), ("pml-server", server)):
            check(name, program, machine, options.glibc)
        npm(out, version, machine, pml, readme)
        wheel(out, version, machine, pml, readme)
        deb(out, version, machine, "pml", pml, "bin", [])
        deb(out, version, machine, "pml-server", server, "bin", unit)
        bundle(out, version, machine, pml, readme)
    links(out)
    if url := os.environ.get("PML_RELEASE_URL"):
        formula(out, version, options.machines, url)
    else:
        print("packages.py: PML_RELEASE_URL is not set, so there is no formula for Homebrew", file=sys.stderr)


if __name__ == "__main__":
    main()
