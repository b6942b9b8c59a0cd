#!/usr/bin/env python3
"""Builds a container image of a program without a container engine: an OCI image layout (v1.1) in a folder.

    deploy/image.py --program pml-server --bin FOLDER --out FOLDER [--sbom FILE] [--limit MB]

FOLDER of --bin has the built program; release.sh leaves it in FOLDER/VERSION of its output, packed. The image has the
program, the libraries that it is linked to, the certificates of this machine, and nothing else: no shell. It runs as user
65532 and needs no writable root. The same inputs and SOURCE_DATE_EPOCH give the same bytes. An image that has
grown over its limit, compressed, is refused.

    skopeo copy oci:FOLDER:VERSION docker://registry.example/pml-server:VERSION
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import tarfile
from datetime import datetime, timezone
from pathlib import Path

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
LEVEL = int(os.environ.get("PML_RELEASE_LEVEL", "9"))
USER = 65532
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MANIFEST, CONFIG = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.config.v1+json"
LAYER, INDEX = "application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.oci.image.index.v1+json"
EMPTY, BILL = "application/vnd.oci.empty.v1+json", "application/vnd.cyclonedx+json"

SETTINGS = {
    # Every interface: the container's own network decides who reaches it.
    "pml-server": {"env": ["PML_LISTEN=0.0.0.0:3001", "PML_DATA_DIR=/var/lib/pml"], "ports": {"3001/tcp": {}}},
    "pml": {"env": ["HOME=/home/pml"], "ports": {}},
}


def libraries(program):
    """Returns the files that the dynamic linker loads for a program, and itself."""
    listed = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"(?:=> |^\s*)(/\S+) \(0x", listed, re.MULTILINE)
    if not found or "not found" in listed:
        raise SystemExit(f"image.py: the libraries of {program} are not complete:\n{listed}")
    return sorted(set(found))


class Root:
    """The file system of the image."""

    def __init__(self):
        self.members = {}

    def folder(self, path, mode=0o755, owner=0):
        parents = [str(parent) for parent in Path(path).parents][:-1]
        for parent in parents:
            self.members.setdefault(parent, (None, 0o755, 0))
        self.members[path] = (None, mode, owner)

    def file(self, path, content, mode=0o644):
        self.folder(str(Path(path).parent))
        self.members[path] = (content, mode, 0)

    def packed(self):
        """Returns the archive, and the same compressed."""
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(self.members):
                content, mode, owner = self.members[path]
                info = tarfile.TarInfo(path.lstrip("/"))
                info.mode, info.uid, info.gid, info.mtime = mode, owner, owner, EPOCH
                if content is None:
                    info.type = tarfile.DIRTYPE
                    archive.addfile(info)
                else:
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
        plain = plain.getvalue()
        return plain, gzip.compress(plain, compresslevel=LEVEL, mtime=0)


def root_of(name, program):
    root = Root()
    root.file(f"/usr/bin/{name}", program.read_bytes(), 0o755)
    for library in libraries(program):
        # The path that the program names, whatever this machine links it to.
        root.file(library, Path(library).resolve().read_bytes(), 0o755)
    root.file(CERTIFICATES, Path(CERTIFICATES).read_bytes())
    root.file("/etc/passwd", f"root:x:0:0::/:/sbin/nologin\npml:x:{USER}:{USER}::/home/pml:/sbin/nologin\n".encode())
    root.file("/etc/group", f"root:x:0:\npml:x:{USER}:\n".encode())
    root.file("/etc/nsswitch.conf", b"passwd: files\nhosts: files dns\n")
    root.folder("/tmp", 0o1777)
    for path in ("/home/pml", "/var/lib/pml"):
        root.folder(path, 0o700, USER)
    # The runtime mounts these.
    for path in ("/dev", "/proc", "/sys"):
        root.folder(path)
    return root


class Layout:
    """An image layout: blobs by their hash."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)

    def add(self, content, media_type, **more):
        if isinstance(content, dict):
            content = json.dumps(content, indent=1, sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **more}

    def finish(self, manifests):
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}\n')
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        (self.folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", choices=sorted(SETTINGS), required=True)
    options.add_argument("--bin", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--sbom", type=Path)
    options.add_argument("--limit", type=float, default=40, help="the largest image in MB, compressed")
    options = options.parse_args()
    name, program = options.program, options.bin / options.program
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()
    version = said[-1]
    created = datetime.fromtimestamp(EPOCH, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    annotations = {
        "org.opencontainers.image.title": name,
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.created": created,
    }
    layout = Layout(options.out)
    plain, packed = root_of(name, program).packed()
    if len(packed) > options.limit * 1e6:
        raise SystemExit(f"image.py: the image has {len(packed) / 1e6:.1f} MB, and may have {options.limit:g} MB")
    layer = layout.add(packed, LAYER)
    config = layout.add(
        {
            "created": created, "architecture": ARCHITECTURES[platform.machine()], "os": "linux",
            "config": {
                "User": f"{USER}:{USER}", "Entrypoint": [f"/usr/bin/{name}"], "WorkingDir": "/",
                "Env": [f"SSL_CERT_FILE={CERTIFICATES}", *SETTINGS[name]["env"]],
                "ExposedPorts": SETTINGS[name]["ports"], "Labels": annotations, "StopSignal": "SIGTERM",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
            "history": [{"created": created, "created_by": "deploy/image.py"}],
        },
        CONFIG,
    )
    image = layout.add(
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], "annotations": annotations},
        MANIFEST,
    )
    manifests = [{**image, "annotations": {"org.opencontainers.image.ref.name": version}}]
    if options.sbom:
        # It refers to the image (OCI 1.1, "subject"), so registries list it with it.
        bill = layout.add(options.sbom.read_bytes(), BILL)
        empty = layout.add(b"{}", EMPTY)
        manifests.append(
            layout.add(
                {
                    "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BILL, "config": empty, "layers": [bill],
                    "subject": image,
                },
                MANIFEST,
                artifactType=BILL,
            )
        )
    layout.finish(manifests)
    print(f"{name} {version}: {image['digest']}, {layer['size'] / 1e6:.1f} MB compressed")


if __name__ == "__main__":
    main()
