"""What kind of failure an error is, in one word that stays the same: for programs.

Every surface that tells a program of an error (Python, JSON, HTTP, MCP) tells it this word. Words
are added, and never change their meaning.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """The word of each kind. An error's class says which is its own."""

    FAILED = "failed"
    REFUSED = "refused"
    USAGE = "usage"
    INVALID_NAME = "invalid_name"
    INVALID_BOXFILE = "invalid_boxfile"
    NOT_FOUND = "not_found"
    NOT_RUNNING = "not_running"
    FROZEN = "frozen"
    UNAVAILABLE = "unavailable"
    BUSY = "busy"
    DATA_HELD = "data_held"
    NO_ROOM = "no_room"
    NOT_CONFINED = "not_confined"
    NOT_PROVEN = "not_proven"
    BUILD_FAILED = "build_failed"
    VM_FAILED = "vm_failed"
    GUEST_FAILED = "guest_failed"
    BROKEN_STATE = "broken_state"
    TIMED_OUT = "timed_out"
    COMMAND_FAILED = "command_failed"
    NOT_A_FILE = "not_a_file"
    TOO_LARGE = "too_large"
    FILE_REFUSED = "file_refused"


MEANINGS = {
    Code.FAILED: "box failed in a way that no other word says",
    Code.REFUSED: "the request breaks a rule; asked again, the answer is the same",
    Code.USAGE: "the request is not one that box understands",
    Code.INVALID_NAME: "no sandbox can have that name",
    Code.INVALID_BOXFILE: "the Boxfile has errors",
    Code.NOT_FOUND: "no such sandbox, or no such file in it",
    Code.NOT_RUNNING: "the sandbox is not up",
    Code.FROZEN: "its VM stands still, because its confinement differed; a person decides",
    Code.UNAVAILABLE: "the host lacks something: a program, a kernel, an image, an ID range",
    Code.BUSY: "somebody else holds what is needed; trying later may work",
    Code.DATA_HELD: "another VM of the sandbox has its /data",
    Code.NO_ROOM: "a file system of the host is full",
    Code.NOT_CONFINED: "the VMM was not held to what the sandbox is promised; it was ended",
    Code.NOT_PROVEN: "it could not be shown that the guest has a kernel of its own",
    Code.BUILD_FAILED: "a step of building the image failed",
    Code.VM_FAILED: "the VM did not come up, or broke off",
    Code.GUEST_FAILED: "the guest went away, was silent, or broke the protocol's rules",
    Code.BROKEN_STATE: "a state file of box does not hold what box writes there",
    Code.TIMED_OUT: "it took longer than it was given",
    Code.COMMAND_FAILED: "the command in the sandbox did not succeed",
    Code.NOT_A_FILE: "what is there is no regular file: a folder, a device, a fifo",
    Code.TOO_LARGE: "the file has more bytes than the limit",
    Code.FILE_REFUSED: "the guest's own kernel refused it: rights, room, a read-only root",
}
