#!/usr/bin/env python3
"""Lists what the programs are built of: a bill of materials beside each, and the list in the programs themselves.

The bill is CycloneDX 1.6. The list in a program has the form of `cargo auditable`: compressed JSON in the section `.dep-v0`,
which vulnerability scanners such as `cargo audit bin`, Trivy and Grype read. Called by release.sh.
"""

import argparse
import json
import re
import struct
import subprocess
import zlib
from pathlib import Path

SECTION = b".dep-v0\0"
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
PACKAGES = {"pml": "client-cli", "pml-server": "server"}


class Graph:
    """The crates of the workspace for one machine."""

    def __init__(self, root, machine):
        ran = subprocess.run(
            ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform",
             f"{machine}-unknown-linux-gnu"],
            cwd=root, check=True, capture_output=True, text=True,
        )
        known = json.loads(ran.stdout)
        self.packages = {entry["id"]: entry for entry in known["packages"]}
        self.nodes = {node["id"]: node for node in known["resolve"]["nodes"]}

    def start(self, package):
        return next(key for key, entry in self.packages.items() if entry["name"] == package and entry["source"] is None)

    def dependencies(self, node, kinds):
        for dependency in self.nodes[node]["deps"]:
            if any(kind["kind"] in kinds for kind in dependency["dep_kinds"]):
                yield dependency["pkg"]

    def reached(self, starts, kinds):
        found, waiting = set(), list(starts)
        while waiting:
            current = waiting.pop()
            if current not in found:
                found.add(current)
                waiting.extend(self.dependencies(current, kinds))
        return found

    def of(self, package):
        """Returns the crates of a program, and which of them are in the program itself; not those of tests."""
        start = self.start(package)
        return self.reached([start], {None, "build"}), self.reached([start], {None})


def auditable(graph, package):
    """Returns the list in the form of `cargo auditable`."""
    every, linked = graph.of(package)
    order = sorted(every, key=lambda key: (graph.packages[key]["name"], graph.packages[key]["version"], key))
    place = {key: index for index, key in enumerate(order)}
    start, listed = graph.start(package), []
    for key in order:
        entry = graph.packages[key]
        source = {None: "local", CRATES_IO: "crates.io"}.get(entry["source"], "registry")
        item = {"name": entry["name"], "version": entry["version"], "source": source}
        if key not in linked:
            item["kind"] = "build"
        if dependencies := sorted({place[dependency] for dependency in graph.dependencies(key, {None, "build"})}):
            item["dependencies"] = dependencies
        if key == start:
            item["root"] = True
        listed.append(item)
    return json.dumps({"packages": listed}, separators=(",", ":")).encode()


def with_section(program, content):
    """Returns an ELF file with another section, which is not loaded. What is loaded stays as it is."""
    if program[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("bill.py: a program is not a 64-bit little-endian ELF file")
    (table,), (size, count, names) = struct.unpack_from("<Q", program, 0x28), struct.unpack_from("<HHH", program, 0x3A)
    headers = [list(struct.unpack_from("<IIQQQQIIQQ", program, table + index * size)) for index in range(count)]
    at, length = headers[names][4:6]
    text = program[at : at + length]
    if SECTION in text:
        # Built by `cargo auditable`, or from an earlier release.
        return program
    out = bytearray(program)

    def append(part):
        out.extend(b"\0" * (-len(out) % 8))
        start = len(out)
        out.extend(part)
        return start

    headers.append([len(text), 1, 0, 0, append(content), len(content), 0, 0, 1, 0])
    headers[names][4:6] = append(text + SECTION), len(text + SECTION)
    table = append(b"".join(struct.pack("<IIQQQQIIQQ", *header) for header in headers))
    struct.pack_into("<Q", out, 0x28, table)
    struct.pack_into("<H", out, 0x3C, len(headers))
    return bytes(out)


def bill_of_materials(graphs, lock, version, package, program):
    """Returns the crates that a program is built from on any machine, as CycloneDX 1.6."""
    hashes = {
        (name, found): checksum
        for name, found, checksum in re.findall(
            r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]+"\nchecksum = "([0-9a-f]{64})"', lock
        )
    }
    entries = {}
    for graph in graphs:
        entries.update({key: graph.packages[key] for key in graph.of(package)[0] - {graph.start(package)}})
    components = []
    for entry in sorted(entries.values(), key=lambda entry: (entry["name"], entry["version"])):
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
    return json.dumps(bill, indent=1) + "\n"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("root", "bin", "out"):
        options.add_argument(f"--{name}", type=Path, required=True)
    options.add_argument("--version", required=True)
    options.add_argument("--machines", nargs="+", required=True)
    options = options.parse_args()
    graphs = {machine: Graph(options.root, machine) for machine in options.machines}
    lock = (options.root / "Cargo.lock").read_text()
    for program, package in PACKAGES.items():
        for machine, graph in graphs.items():
            path = options.bin / machine / program
            listed = zlib.compress(auditable(graph, package), 9)
            path.write_bytes(with_section(path.read_bytes(), listed))
        bill = bill_of_materials(graphs.values(), lock, options.version, package, program)
        (options.out / f"{program}.cdx.json").write_text(bill)


if __name__ == "__main__":
    main()
