"""The verb `export`: a trained model as one file for another machine, and as programs that need no las."""

from pathlib import Path
from typing import Any

from las import arguments, atomic, build, bundle, checkpoint, programs, progress, transcribe
from las.errors import ConfigError


def export(overrides: list[str]) -> Path:
    """Write a bundle, and programs where they are asked for: see configs/export.yaml. Returns the bundle's path."""
    config = build.compose("export", overrides)
    for key, kind in (("checkpoint", str), ("output", str), ("programs", str | None), ("strict", bool)):
        arguments.check_value(key, config[key], kind)
    output = Path(config["output"])
    if output.is_dir():
        raise ConfigError(f"output={output} is a folder: a bundle is one file, for example {output / 'model.las'}")
    atomic.require_place(output)
    if config["programs"]:
        atomic.require_folder(Path(config["programs"]))
    found, complaints = checkpoint.find(Path(config["checkpoint"]), config["strict"])
    for complaint in complaints:
        progress.say(complaint)
    search = portable(found.config.get("search", {}))
    bundle.write(output, found.model, found.state, found.config | {"search": search})
    transcriber = transcribe.load(output)  # opens as it will elsewhere
    progress.say(f"{found.directory}: {output}, {output.stat().st_size:,} bytes, opens")
    if config["programs"]:
        folder = Path(config["programs"])
        programs.save(programs.listener(transcriber.model, transcriber.sample_rate), folder / "listener.pt2")
        programs.save(programs.speller(transcriber.model), folder / "speller.pt2")
        progress.say(f"{folder / 'listener.pt2'}, {folder / 'speller.pt2'}: torch.export.load opens them")
    progress.say(f"next:  las transcribe checkpoint={output} input=talk.flac")
    return output


def portable(search: dict[str, Any]) -> dict[str, Any]:
    """A search without scorers that live in files of this machine, such as language models; those are named."""
    kept = {}
    for name, part in search.items():
        if isinstance(part, dict) and "path" in part:
            progress.say(
                f"left out of the bundle: search.{name}, which is the file {part['path']}: give it again there"
            )
        else:
            kept[name] = part
    return kept
