"""Refusals of a writer: the control plane is not the one that it has written to."""

from stratalog.errors import CallError


class WriterRefusedError(CallError):
    """The control plane takes no more commits of this writer."""


class ControlPlaneWentBackError(WriterRefusedError):
    """The control plane has forgotten commits that it had acknowledged."""


class ControlPlaneHaltedError(WriterRefusedError):
    """The cluster is halted: the control plane went back. An operator decides how to go on."""


class WriterEndedError(WriterRefusedError):
    """The writer was ended, or its tag is used by another process."""
