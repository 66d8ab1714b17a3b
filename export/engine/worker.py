"""The process that builds one engine: `python -m edgekit.export.engine.worker`.

It reads an `EngineRequest` on stdin and answers with JSON lines: progress while it works, then
either `done` with a report or `error`. A builder that runs out of memory takes only this process
with it. When nobody reads the answers any more, it stops.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.engines import FLAVOURS
from edgekit.errors import BuildError, EdgekitError
from edgekit.export.engine.flavour import Toolkit, load_toolkit
from edgekit.export.engine.layers import HEADINGS, check_engine, check_layers, parse_layers
from edgekit.export.engine.plugin_network import add_graph, read_plugin_graph
from edgekit.export.engine.plugins import PluginLibrary, check_shared_memory
from edgekit.export.engine.request import STEPS, EngineReport, EngineRequest, Profile
from edgekit.export.plugins.compile import compile_ptx


def main() -> None:
    """Builds what stdin asks for."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the libraries print goes to stderr
    request = EngineRequest.from_json(sys.stdin.read())

    def say(**record: Any) -> None:
        answers.write(json.dumps(record, default=str) + "\n")

    try:
        report = build(request, lambda done, phase: say(type="progress", done=done, phase=phase))
    except EdgekitError as error:
        say(type="error", kind=type(error).__name__, **error.as_dict())
        sys.exit(1)
    fields = {name: getattr(report, name) for name in EngineReport.__slots__}
    say(type="done", **fields)


def build(request: EngineRequest, on_progress: Any) -> EngineReport:
    """Makes a network of the graph, builds the engine, checks it, and writes the plan.

    Raises:
        BuildError: the parser or the builder refuses, or the engine is not what was asked for.
        MissingDependencyError: the flavour is missing, too old or known to be bad.
    """
    toolkit = load_toolkit(request.flavour)
    toolkit.check(request.sm, request.formats)
    trt = toolkit.module
    log = _logger(trt)
    builder = trt.Builder(log)
    network = toolkit.create_network(builder)
    config = builder.create_builder_config()
    toolkit.set_target(config, request.sm)
    with_plugins = FLAVOURS[request.flavour].lowering == "plugin"
    if with_plugins:
        toolkit.allow_state(config)
        _add_plugins(toolkit, network, request)
    else:
        toolkit.require_capture(config)
        _parse(toolkit, network, log, request.graph)
    products = [
        layer.name
        for layer in (network.get_layer(i) for i in range(network.num_layers))
        if layer.type == trt.LayerType.MATRIX_MULTIPLY
        and layer.get_input(0).dtype == trt.DataType.BF16
    ]
    config.clear_flag(trt.BuilderFlag.TF32)  # the state of a sequence is float32 for a reason
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    toolkit.load_timing_cache(config, request.timing_cache)
    for profile in request.profiles:
        config.add_optimization_profile(_profile(builder, network, profile))
    monitor = _monitor(trt, on_progress)
    config.progress_monitor = monitor
    started = time.monotonic()
    part = request.plan.with_name(f"{request.plan.name}.part")
    with part.open("wb") as file, _Memory() as memory:
        built = toolkit.build(builder, network, config, file)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.monotonic() - started
    if not built:
        raise BuildError(
            f"TensorRT could not build an engine from {request.graph.name}",
            cause="\n".join(log.errors) or "it gave no reason",
            hint="report this with the graph: edgekit build --stop-after graph",
        )
    if with_plugins:
        names = [network.get_output(i).name for i in range(network.num_outputs)]
        count = check_engine(trt, log, part, names)
    else:
        layers = parse_layers("\n".join(log.listing))
        check_layers(layers, request.formats, products)
        count = len(layers)
    toolkit.save_timing_cache(config, request.timing_cache)
    part.replace(request.plan)
    nbytes = request.plan.stat().st_size
    return EngineReport(request.plan, toolkit.version, nbytes, count, seconds, memory.peak)


def _add_plugins(toolkit: Toolkit, network: Any, request: EngineRequest) -> None:
    graph = read_plugin_graph(request.graph)
    most = max(profile.largest for profile in request.profiles)
    check_shared_memory(graph.launches, most)
    library = PluginLibrary(
        toolkit.module, toolkit.plugins(), lambda kernel: compile_ptx(kernel, request.sm)
    )
    add_graph(network, toolkit.module, library, graph)


def _parse(toolkit: Toolkit, network: Any, log: Any, graph: Path) -> None:
    parser = toolkit.module.OnnxParser(network, log)
    if parser.parse_from_file(str(graph)):
        return
    errors = [parser.get_error(i) for i in range(parser.num_errors)]
    causes = [f"{error.node_name()}: {error.desc()}" for error in errors]
    plugins = [cause for cause in causes if "plugin" in cause.lower()]
    raise BuildError(
        f"TensorRT {toolkit.version} does not take {graph.name}",
        cause="\n".join(plugins or causes or log.errors),
        hint="build with --executor kernels"
        if plugins
        else "use a newer TensorRT, or build with --executor kernels",
    )


def _profile(builder: Any, network: Any, sizes: Profile) -> Any:
    profile = builder.create_optimization_profile()
    for i in range(network.num_inputs):
        tensor = network.get_input(i)
        shape = tuple(tensor.shape)
        if -1 in shape:
            shapes = (
                [size if dim == -1 else dim for dim in shape]
                for size in (sizes.smallest, sizes.usual, sizes.largest)
            )
            profile.set_shape(tensor.name, *shapes)
    return profile


def _logger(trt: Any) -> Any:
    """Keeps errors, and the list of layers, which the builder logs verbosely."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.listing: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(message)
            elif message.startswith(HEADINGS):
                self.listing.append(message)

    return Log()


class _Memory:
    """Watches this process while a block runs; `peak` is what it held at most, in bytes."""

    def __init__(self) -> None:
        self.peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self.peak = max(self.peak, _anonymous_bytes())


def _anonymous_bytes() -> int:
    """Memory of this process that no file backs. The weights file is mapped: its pages are the
    kernel's to drop."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "RssAnon":
            return int(value.split()[0]) * 1024
    return 0


@dataclass(slots=True)
class _Phase:
    total: int
    done: int = 0
    inner: dict[str, _Phase] = field(default_factory=dict)

    def fraction(self) -> float:
        inside = sum(phase.fraction() for phase in self.inner.values()) / max(len(self.inner), 1)
        return min((self.done + inside) / max(self.total, 1), 1.0)


def _monitor(trt: Any, on_progress: Any) -> Any:
    """Turns nested phases into parts of the whole; the parts never go back."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.root = _Phase(1)
            self.phases: dict[str, tuple[_Phase, _Phase]] = {}  # a phase and the one around it
            self.told = -1

        def phase_start(self, name: str, parent: str | None, steps: int) -> None:
            around = self.phases[parent][0] if parent in self.phases else self.root
            phase = around.inner[name] = _Phase(steps)
            self.phases[name] = (phase, around)

        def step_complete(self, name: str, step: int) -> bool:
            phase = self.phases[name][0]
            phase.done = step + 1
            return self.tell(name)

        def phase_finish(self, name: str) -> None:
            _, around = self.phases.pop(name)
            around.inner.pop(name, None)

        def tell(self, name: str) -> bool:
            done = int(STEPS * self.root.fraction())
            if done <= self.told:
                return True
            self.told = done
            try:
                on_progress(done, name)
            except OSError:  # nobody listens: the build was given up
                return False
            return True

    return Monitor()


if __name__ == "__main__":
    main()
