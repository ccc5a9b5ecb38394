"""Files and CDI specs of a host: read, compare, then act, so that an interrupted step can be rerun."""

from __future__ import annotations

from dataclasses import dataclass

from gpuclusters.core.converge import Reporter
from gpuclusters.domain import cdi
from gpuclusters.domain.cdi import CdiSpecInputs
from gpuclusters.domain.host_file import HostFileSpec, sha256_of
from gpuclusters.domain.module_map import MapSource, require_map
from gpuclusters.domain.ports import LiveFile, ModuleMap, NodeFiles, PciDevices
from gpuclusters.domain.refusals import RefusalError

# A runtime reads CDI specs as root; nobody else has to write them.
CDI_MODE = "0644"
CDI_OWNER = "root:root"


def ensure_file(
    spec: HostFileSpec, files: NodeFiles, reporter: Reporter, *, written: str | None
) -> str:
    """Bring the file to what the spec says; answers its sha256.

    Args:
        spec: the file.
        files: the host.
        reporter: hears of drift that is put back and of files taken over.
        written: sha256 of what this resource wrote last, None when it has written nothing yet.

    Raises:
        RefusalError: a different file that is not ours is in the way.
    """
    content = spec.content.encode()
    live = files.read(spec.path)
    if live is not None and _same(live, content, spec.mode, spec.owner):
        return live.sha256
    if live is not None and live.content != content:
        if written is None:
            raise RefusalError(
                f"{files.place}: {spec.path}",
                f"a different file is there already (sha256 {live.sha256[:12]}, "
                f"{len(live.content)} bytes, {live.owner} {live.mode})",
                "move it away, or make it equal",
            )
        if live.sha256 != written:
            reporter.note(_drift_note(files.place, spec.path))
    return files.write(spec.path, content, mode=spec.mode, owner=spec.owner)


def remove_file(path: str, files: NodeFiles, *, written: str) -> None:
    """Remove the file if it is what this resource wrote; absent is fine.

    Raises:
        RefusalError: somebody has changed the file since.
    """
    live = files.read(path)
    if live is None:
        return
    if live.sha256 != written:
        raise RefusalError(
            f"{files.place}: {path}",
            "the file was changed on the host since it was written here "
            f"(sha256 {live.sha256[:12]} instead of {written[:12]}), so it is not removed",
            "run a refresh to accept it as it is now and destroy again, or remove it by hand",
        )
    files.remove(path)


@dataclass(frozen=True, slots=True)
class CdiResult:
    """The CDI file as it is on the host now."""

    content: str
    sha256: str


def ensure_cdi(
    spec: CdiSpecInputs,
    files: NodeFiles,
    pci: PciDevices,
    reporter: Reporter,
    *,
    written: str | None,
    modules: ModuleMap | None = None,
) -> CdiResult:
    """Bring the CDI file to what the spec says, with the IOMMU groups that the host has now.

    Args:
        spec: kind and devices.
        files: the host's files.
        pci: the host's PCI functions.
        reporter: hears of drift that is put back and of files taken over.
        written: sha256 of what this resource wrote last, None when it has written nothing yet.
        modules: where the GPUs say they sit; devices named by module must be in that one.

    Raises:
        RefusalError: a device cannot be passed through, a GPU sits in another module, another
            file defines the same name, or a file that is not ours is in the way and `adopt` is not
            set.
    """
    found = pci.inspect([d.pci_address for d in spec.devices])
    cdi.require_vfio(files.place, spec.devices, found)
    configured = spec.configured_map
    if modules is not None and configured and spec.module_map is MapSource.READ:
        require_map(modules.place, configured, modules.read(sorted(configured.values())))
    content = cdi.render(spec, found)
    taken = cdi.conflicts(spec, files.read_folders(cdi.CDI_FOLDERS, cdi.CDI_SUFFIXES))
    if taken:
        raise RefusalError(
            f"{files.place}: {spec.path}",
            f"another CDI spec defines the same device: {', '.join(taken)}",
            "remove that file or choose another kind; a name defined twice is unusable",
        )
    live = files.read(spec.path)
    if live is not None and _same(live, content.encode(), CDI_MODE, CDI_OWNER):
        return CdiResult(content, live.sha256)
    if live is not None and live.content != content.encode():
        ours = cdi.is_ours(live.content)
        if written is None and not ours and not spec.adopt:
            raise RefusalError(
                f"{files.place}: {spec.path}",
                f"the file is not ours (it lacks the annotation {cdi.OWNER_ANNOTATION}: "
                f"{cdi.OWNER})",
                "move it away, or take it over (adopt), if it hands out the same",
            )
        if written is None and not ours:
            reporter.note(f"{files.place}: {spec.path}: taken over; it was not ours")
        elif written is not None and live.sha256 != written:
            reporter.note(_drift_note(files.place, spec.path))
    return CdiResult(
        content, files.write(spec.path, content.encode(), mode=CDI_MODE, owner=CDI_OWNER)
    )


def cdi_drift(spec: CdiSpecInputs, live: LiveFile, pci: PciDevices) -> list[str]:
    """In words, how the live file differs from what the spec and the hardware ask for."""
    found = pci.inspect([d.pci_address for d in spec.devices])
    try:
        cdi.require_vfio(pci.place, spec.devices, found)
        wanted = cdi.render(spec, found).encode()
    except RefusalError as refusal:
        return [refusal.problem]
    if live.content == wanted:
        if (live.mode, live.owner) != (CDI_MODE, CDI_OWNER):
            return [f"mode and owner are {live.mode} {live.owner}, not {CDI_MODE} {CDI_OWNER}"]
        return []
    if not cdi.is_ours(live.content):
        return ["the file was replaced by one that is not ours"]
    if cdi.devices_in(live.content) == cdi.devices_in(wanted):
        return ["the VFIO nodes in the file are not those of the devices"]
    return ["kind or devices in the file were changed"]


def remove_cdi(path: str, files: NodeFiles) -> None:
    """Remove the CDI file if it carries our mark; absent is fine.

    Raises:
        RefusalError: a file without our mark is there.
    """
    live = files.read(path)
    if live is None:
        return
    if not cdi.is_ours(live.content):
        raise RefusalError(
            f"{files.place}: {path}",
            "the file was replaced by one that is not ours (it lacks the annotation "
            f"{cdi.OWNER_ANNOTATION}), so it is not removed",
            "remove it by hand if nothing needs it, then destroy again",
        )
    files.remove(path)


def _same(live: LiveFile, content: bytes, mode: str, owner: str) -> bool:
    return (live.sha256, live.mode, live.owner) == (sha256_of(content), mode, owner)


def _drift_note(place: str, path: str) -> str:
    return f"{place}: {path}: was changed on the host since it was written here; put back"
