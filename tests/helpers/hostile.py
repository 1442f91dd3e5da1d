"""Files and configs that would run code if anything believed them; each would leave a mark."""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

NUMPY = b"\x93NUMPY\x01\x00\x46\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(79) + b"\n"


def pickles(mark: Path) -> dict[str, bytes]:
    """Each runs `touch mark` when it is unpickled, written opcode by opcode."""
    command = f"touch {mark}".encode()
    python = f"open({str(mark)!r}, 'w')".encode()
    short = b"\x8c" + bytes([len(command)]) + command
    return {
        "global": b"cposix\nsystem\n(V" + command + b"\ntR.",
        "global, protocol 2": b"\x80\x02cposix\nsystem\nX" + len(command).to_bytes(4, "little") + command + b"\x85R.",
        "stack_global": b"\x80\x04\x8c\x05posix\x8c\x06system\x93" + short + b"\x85R.",
        "inst": b"(V" + command + b"\niposix\nsystem\n.",
        "obj": b"(cposix\nsystem\nV" + command + b"\no.",
        "eval": b"cbuiltins\neval\n(V" + python + b"\ntR.",
        "exec": b"cbuiltins\nexec\n(V" + python + b"\ntR.",
        "build": b"cbuiltins\nexec\n(V" + python + b"\ntR(dVx\nVy\nsb.",
    }


def containers(content: bytes) -> dict[str, bytes]:
    """A pickle as it is found in the wild."""
    plain, nested = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(plain, "w") as file:
        file.writestr("archive/data.pkl", content)
        file.writestr("archive/version", "3\n")
    with zipfile.ZipFile(nested, "w") as file:
        file.writestr("archive/data.pkl", plain.getvalue())
    old = io.BytesIO()
    with tarfile.open(fileobj=old, mode="w") as tar:
        entry = tarfile.TarInfo("storages")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return {
        "bare": content,
        "torch zip": plain.getvalue(),
        "zip in a zip": nested.getvalue(),
        "torch tar": old.getvalue(),
        "numpy object": NUMPY + content,
    }


def others(mark: Path) -> dict[str, bytes]:
    """What else has run code, or ended the reader, elsewhere."""
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    return {
        "gzip": gzip.compress(pickles(mark)["global"]),
        "jsonpickle": json.dumps({"py/reduce": [{"py/function": "os.system"}, [f"touch {mark}"]]}).encode(),
        "yaml": f"!!python/object/apply:os.system ['touch {mark}']".encode(),
        "python": f"__import__('os').system('touch {mark}')".encode(),
        "safetensors with a huge header": (1 << 62).to_bytes(8, "little") + b"{}",
        "safetensors beyond the end": len(header).to_bytes(8, "little") + header,
        "deep json": b"[" * 200_000,
        "deep objects": b'{"a":' * 200_000,
        "huge number": b"9" * 10_000,
        "NaN": b"NaN",
    }


def files(mark: Path) -> Iterator[tuple[str, bytes]]:
    """(name, content) of all of them: 50."""
    for kind, content in pickles(mark).items():
        for container, packed in containers(content).items():
            yield f"{kind} in {container}", packed
    yield from others(mark).items()


_CALLS = """
os.system os.popen os.execv os.spawnl os.posix_spawn os.remove os.rename os.mkdir os.kill os.fork os._exit
posix.system posix.execv nt.system logging.os.system shutil.os.system subprocess.Popen subprocess.run subprocess.call
subprocess.check_output subprocess.getoutput builtins.eval builtins.exec builtins.compile builtins.open
builtins.__import__ eval exec open io.open io.FileIO codecs.open pickle.loads pickle.load pickle.Unpickler
_pickle.loads marshal.loads shelve.open dill.loads cloudpickle.loads joblib.load runpy.run_path runpy.run_module
timeit.timeit cProfile.run profile.run pdb.run trace.Trace bdb.Bdb code.InteractiveInterpreter pipes.Template
pty.spawn shutil.rmtree shutil.move shutil.copyfile shutil.unpack_archive pathlib.Path.write_text pathlib.Path.unlink
pathlib.Path.open tempfile.mkdtemp importlib.import_module importlib.reload zipfile.ZipFile tarfile.open ctypes.CDLL
ctypes.cdll.LoadLibrary socket.socket urllib.request.urlopen urllib.request.urlretrieve http.client.HTTPConnection
ftplib.FTP smtplib.SMTP webbrowser.open multiprocessing.Process threading.Thread asyncio.create_subprocess_shell
atexit.register signal.signal sys.exit distutils.spawn.spawn setuptools._distutils.spawn.spawn sympy.sympify
numpy.load numpy.f2py.run_main numpy.fromfile torch.load torch.serialization.load torch.hub.load torch.jit.load
torch.utils.cpp_extension.load_inline torch.ops.load_library torch.package.PackageImporter
torch.nn.Module.load_state_dict torch.nn.modules.module.os.system torch.nn.functional.torch.load
torch.optim.optimizer.os.system torch.nn.init.warnings.warn torch.optim.__builtins__
torch.nn.parallel.distributed.os.system las.nn.cells.base.torch.load las.data.corpora.base.os.system
las.data.tokenizers.Path las.config.build.build las.storage.run_directory.subprocess.run
las.storage.checkpoint.shutil.rmtree las.storage.archive.extract las.storage.download.fetch las.storage.atomic.write
las.nn.attention.base.math.os las.nn.listener.torch.hub.load las.nn.cells..os.system las.nn.cells.base.__builtins__
las.__builtins__ hydra.utils.instantiate hydra.utils.call hydra._internal.utils._locate omegaconf.OmegaConf.load
lhotse.utils.resumable_download
pathlib.Path torch.nn.functional.relu torch.nn.Parameter torch.nn.modules.module.torch.load torch.optim.torch.load
torch.optim._multi_tensor.torch las.storage.atomic.write_json las.storage.run_directory.Run las.cli.train.train
las.cli.main.main las.config.build.importlib.import_module las.data.audio.files.load las.storage.checkpoint.save
las.nn.cells.os.system las.nn.cells.lstm.torch.load las.nn.cells.base.nn las.nn.normalisation.layer_norm
las.data.corpora.base.ThreadPoolExecutor las.data.corpora.base.Path las.data.corpora.timit.read las.cellsx.Thing
las.decoding.search.torch las las.nn.cells os . ..os.system las..cells.lstm.PlainLSTMCell
"""
CALLS = ["", *_CALLS.split()]
"""What a `_target_` must never reach."""
