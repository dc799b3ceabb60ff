"""Lets the CUDA build of torch be imported for CPU work without the CUDA libraries.

On PyPI the x86-64 Linux wheel of torch is the CUDA build. It depends on about 2.4 GB of NVIDIA libraries that nothing here
calls, but the dynamic loader wants to see them. This script looks at what the installed libraries need and puts small
stand-ins beside them: right file name, right symbol versions, every function returning 1, which each of these libraries
defines as a failure. The CUDA runtime itself (libcudart, 2.5 MB) runs code when it is loaded and must be the real one.

usage: torch_without_cuda.py TORCH_LIB_FOLDER [FOLDER_WITH_libcudart ...]
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FAMILIES = r"(cublas|cudnn|cufft|cusparse|cusolver|cufile|cupti|nvrtc|nccl|nvshmem)"
STAND_IN = re.compile(r"^lib" + FAMILIES + r"\w*\.so\.\d+$", re.IGNORECASE)
SYMBOL = re.compile(r"^(cu|nv|nccl|__cu|__nv)", re.IGNORECASE)


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_libraries(libraries):
    """The file names all `libraries` together ask the loader for."""
    names = set()
    for library in libraries:
        names.update(re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "-d", "-W", str(library))))
    return names


def version_owners(libraries):
    """{symbol version: file name of the library it is expected from}."""
    owners = {}
    for library in libraries:
        owner = None
        for line in output_of("readelf", "-V", "-W", str(library)).splitlines():
            file = re.search(r"File: (\S+)", line)
            name = re.search(r"Name: (\S+)\s+Flags", line)
            if file:
                owner = file.group(1)
            elif name and owner:
                owners[name.group(1)] = owner
    return owners


def undefined_symbols(libraries):
    """{symbol: version or None} of the CUDA functions `libraries` import and none of them defines."""
    wanted, defined = {}, set()
    for library in libraries:
        for line in output_of("nm", "-D", str(library)).splitlines():
            parts = line.split()
            kind, name = parts[-2], parts[-1]
            name, _, version = name.partition("@")
            if kind in "Uvw":
                if SYMBOL.match(name):
                    wanted.setdefault(name, version.strip("@") or None)
            else:
                defined.add(name)
    return {name: version for name, version in wanted.items() if name not in defined}


def build(library, symbols, version, folder):
    """Compiles `library` with `symbols`, all returning 1, under `version` (None: unversioned)."""
    with tempfile.TemporaryDirectory() as temporary:
        source = pathlib.Path(temporary) / "stand_in.c"
        script = pathlib.Path(temporary) / "versions"
        source.write_text("".join(f"int {name}(void) {{ return 1; }}\n" for name in sorted(symbols)) or "int unused;\n")
        script.write_text(f"{version} {{ global: *; }};\n")
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{library}", "-o", str(folder / library)]
        if version:
            command.append(f"-Wl,--version-script={script}")
        subprocess.run([*command, str(source)], check=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    for source in sys.argv[2:]:
        for library in pathlib.Path(source).glob("libcudart.so.*"):
            shutil.copy(library, folder / library.name)
    torch_libraries = sorted(folder.glob("lib*torch*.so")) + sorted(folder.glob("libc10*.so"))
    missing = {name for name in needed_libraries(torch_libraries) if STAND_IN.match(name)}
    version_of = {owner: version for version, owner in version_owners(torch_libraries).items()}
    symbols = undefined_symbols(torch_libraries)
    unversioned = {name for name, version in symbols.items() if version is None}
    for library in sorted(missing):
        version = version_of.get(library)
        if version:
            mine = {name for name, wanted in symbols.items() if wanted == version}
        else:  # the loader finds an unversioned import in any library: the first one carries them all
            mine, unversioned = unversioned, set()
        build(library, mine, version, folder)
    print(f"{len(missing)} stand-ins for CUDA libraries in {folder}")


if __name__ == "__main__":
    main()
