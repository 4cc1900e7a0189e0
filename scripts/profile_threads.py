#!/usr/bin/env python3
"""Shares of each thread's processor time, by system call and by function, while a command runs.

    sudo python3 scripts/profile_threads.py [--least 2] [--json FILE] -- \\
        target/release/thalweg bench allreduce --lab --hosts 4 --rate 25gbit --mb 64 --collective aggregate

Samples all processors about 991 times a second by the kernel's own clock event (`perf_event_open`), so that neither
`perf` nor hardware counters are needed; Linux on x86-64, as root. Prints for every thread name in the processes
of the command, for the kernel's threads of softirqs, and for the rest of the machine together: the number of threads,
their processor time, how busy they were during their lives and in the windows of 10 ms in which they ran, switches of
context, and shares of their samples: by system call (work for the network that the kernel does within one is listed
apart, as softirq) and, outside of the kernel, by crate or library; then the functions with most samples. Rust's functions are named by the program's symbols: what the compiler has inlined counts for its caller.
"""

import argparse
import bisect
import collections
import ctypes
import errno
import json
import mmap
import os
import pathlib
import platform
import re
import struct
import subprocess
import sys
import time

PERIOD_NS = 1_009_000
WINDOW_NS = 10_000_000
BUFFER_PAGES = 256
PERF_EVENT_OPEN = 298
# Kinds of records, and what a COMM says of its cause.
MMAP, LOST, COMM, EXIT, FORK, SAMPLE = 1, 2, 3, 4, 7, 9
COMM_BY_EXEC = 1 << 13
SYSTEM_CALL = re.compile(r"^__(?:x64_)?sys_(\w+)$")
SOFTIRQ = {"handle_softirqs", "__do_softirq"}
INTERRUPT = re.compile(r"^(asm_)?(sysvec_|common_interrupt)")
STARTING = "(starting or ending)"
IDLE, SOFTIRQ_THREAD, OTHERS = "(interrupts of idle processors)", "(ksoftirqd)", "(other programs)"
FAULT = re.compile(r"^(asm_)?exc_page_fault$|^do_user_addr_fault$")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--least", type=float, default=2, help="percent of a thread's samples from which a line is printed (default: 2)")
    parser.add_argument("--json", type=pathlib.Path, help="file for all shares as one document")
    parser.add_argument("command", nargs="+", help="program and arguments, after --")
    arguments = parser.parse_args()
    if platform.machine() != "x86_64":
        parser.error("names and numbers of system calls in this script are those of x86-64")
    sampler = Sampler()
    switches = Switches()
    began = time.monotonic()
    child = subprocess.Popen(arguments.command)
    while child.poll() is None:
        sampler.drain()
        switches.read()
        time.sleep(0.02)
    wall_s = time.monotonic() - began
    sampler.drain()
    profile = Profile(sampler.records(), child.pid)
    document = {"command": arguments.command, "wall_s": round(wall_s, 3), "lost": profile.lost, "threads": profile.summary(switches)}
    print(text(document, arguments.least))
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1))
    sys.exit(child.returncode)


class Sampler:
    """One event and one ring of records for every processor."""

    def __init__(self):
        self.rings = []
        self.blobs = []
        for cpu in sorted(os.sched_getaffinity(0)):
            descriptor = open_event(cpu)
            ring = mmap.mmap(descriptor, (BUFFER_PAGES + 1) * mmap.PAGESIZE)
            self.rings.append(ring)

    def drain(self):
        size = BUFFER_PAGES * mmap.PAGESIZE
        for ring in self.rings:
            head, tail = struct.unpack_from("<QQ", ring, 1024)
            start, end = tail % size, head % size
            data = ring[mmap.PAGESIZE:]
            self.blobs.append(data[start:end] if start <= end else data[start:] + data[:end])
            struct.pack_into("<Q", ring, 1032, head)

    def records(self):
        """All records in the order of their times."""
        found = []
        for blob in self.blobs:
            at = 0
            while at < len(blob):
                kind, misc, length = struct.unpack_from("<IHH", blob, at)
                body = blob[at + 8:at + length]
                if kind == SAMPLE:
                    when = struct.unpack_from("<Q", body, 16)[0]
                else:
                    when = struct.unpack_from("<Q", body, len(body) - 8)[0]
                found.append((when, kind, misc, body))
                at += length
        found.sort(key=lambda record: record[0])
        return found


def open_event(cpu):
    """Opens the clock event of a processor: samples with chains of the kernel's callers, and events of tasks."""
    attributes = bytearray(128)
    ip_tid_time_callchain = 1 | 2 | 4 | 32
    flags = sum(1 << bit for bit in (8, 9, 13, 18, 22))  # mmap, comm, task, sample_id_all, exclude_callchain_user
    struct.pack_into("<IIQQQQQ", attributes, 0, 1, 128, 0, PERIOD_NS, ip_tid_time_callchain, 0, flags)
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = (ctypes.c_char * 128).from_buffer(attributes)
    close_on_exec = 8
    descriptor = libc.syscall(PERF_EVENT_OPEN, buffer, -1, cpu, -1, ctypes.c_ulong(close_on_exec))
    if descriptor < 0:
        code = ctypes.get_errno()
        hint = ": run it as root" if code in (errno.EACCES, errno.EPERM) else ""
        sys.exit(f"perf_event_open on processor {cpu}: {os.strerror(code)}{hint}")
    return descriptor


class Switches:
    """Switches of context of every thread since the command began, as last read."""

    def __init__(self):
        self.before = self.counts()
        self.last = {}
        self.due = 0.0

    def read(self):
        if time.monotonic() >= self.due:
            self.last.update(self.counts())
            self.due = time.monotonic() + 0.25

    def counts(self):
        found = {}
        for status in pathlib.Path("/proc").glob("[0-9]*/task/*/status"):
            try:
                voluntary, forced = re.findall(r"voluntary_ctxt_switches:\s+(\d+)", status.read_text())
            except (OSError, ValueError):
                continue
            found[int(status.parent.name)] = (int(voluntary), int(forced))
        return found

    def of(self, tids):
        """Voluntary and forced ones of some threads."""
        pairs = [(self.last[tid], self.before.get(tid, (0, 0))) for tid in tids if tid in self.last]
        return [sum(after[kind] - before[kind] for after, before in pairs) for kind in (0, 1)]


class Thread:
    """Samples of one thread under one name."""

    def __init__(self, began):
        self.began = began
        self.ended = None
        self.samples = 0
        self.system = 0
        self.windows = collections.Counter()
        self.parts = collections.Counter()
        self.functions = collections.Counter()


class Profile:
    """Samples by thread, made of all records."""

    def __init__(self, records, command):
        self.own = {command}
        self.names = {}
        self.maps = collections.defaultdict(list)
        self.threads = {}
        self.kernel = Kernel()
        self.files = {}
        self.lost = 0
        self.first = records[0][0] if records else 0
        self.last = records[-1][0] if records else 0
        handlers = {MMAP: self.on_mmap, LOST: self.on_lost, COMM: self.on_comm, EXIT: self.on_exit, FORK: self.on_fork, SAMPLE: self.on_sample}
        for when, kind, misc, body in records:
            if kind in handlers:
                handlers[kind](when, misc, body)

    def on_mmap(self, _when, _misc, body):
        pid, _, address, length, offset = struct.unpack_from("<IIQQQ", body)
        path = body[32:body.index(0, 32)].decode(errors="replace")
        self.maps[pid].append((address, length, offset, path))

    def on_lost(self, _when, _misc, body):
        self.lost += struct.unpack_from("<Q", body, 8)[0]

    def on_comm(self, when, misc, body):
        pid, tid = struct.unpack_from("<II", body)
        if misc & COMM_BY_EXEC:
            self.maps[pid] = []
        if pid not in self.own:
            return
        self.end(tid, when)
        self.names[tid] = body[8:body.index(0, 8)].decode(errors="replace")
        self.threads.setdefault((tid, self.names[tid]), Thread(when)).ended = None

    def on_exit(self, when, _misc, body):
        self.end(struct.unpack_from("<IIII", body)[2], when)

    def on_fork(self, when, _misc, body):
        pid, parent, tid, parent_tid = struct.unpack_from("<IIII", body)
        if parent in self.own:
            self.own.add(pid)
        if pid not in self.own:
            return
        self.names[tid] = self.names.get(parent_tid, STARTING)
        self.threads.setdefault((tid, self.names[tid]), Thread(when))
        if pid != parent:
            self.maps[pid] = list(self.maps[parent])

    def end(self, tid, when):
        thread = self.threads.get((tid, self.names.get(tid)))
        if thread:
            thread.ended = when

    def on_sample(self, when, misc, body):
        ip, pid, tid, _, depth = struct.unpack_from("<QIIQQ", body)
        in_kernel = misc & 7 == 1
        chain = [self.kernel.name(caller) for caller in struct.unpack_from(f"<{depth}Q", body, 32)] if in_kernel else []
        if tid == 0 and SOFTIRQ.isdisjoint(chain):
            return
        name = self.names.get(tid, STARTING) if pid in self.own else IDLE if tid == 0 else kernel_thread(chain)
        thread = self.threads.setdefault((tid, name), Thread(self.first))
        thread.samples += 1
        thread.system += in_kernel
        thread.windows[when // WINDOW_NS] += 1
        part, function = (kernel_part(chain), self.kernel.name(ip)) if in_kernel else self.user_part(pid, ip)
        thread.parts[part] += 1
        thread.functions[function] += 1

    def user_part(self, pid, ip):
        """The crate or library of an address outside of the kernel, and its function."""
        if pid not in self.own:
            return (OTHERS, OTHERS)
        for address, length, offset, path in reversed(self.maps[pid]):
            if address <= ip < address + length:
                if path not in self.files:
                    self.files[path] = Symbols.of_file(path)
                base = os.path.basename(path)
                name = self.files[path].name(ip - address + offset)
                return (crate_of(name) or base, name or base)
        return ("?", "?")

    def summary(self, switches):
        by_name = collections.defaultdict(list)
        for (tid, name), thread in self.threads.items():
            by_name[name].append((tid, thread))
        found = [self.summary_of(name, threads, switches) for name, threads in by_name.items()]
        return sorted(filter(None, found), key=lambda thread: -thread["cpu_s"])

    def summary_of(self, name, threads, switches):
        samples = sum(thread.samples for _, thread in threads)
        if not samples:
            return None
        life = {tid: (thread.ended or self.last) - thread.began for tid, thread in threads}
        lives = sum(life.values())
        lasted = sum(span >= WINDOW_NS for span in life.values())
        windows = sum(len(thread.windows) for _, thread in threads)
        voluntary, forced = switches.of({tid for tid, _ in threads})

        def shares(kind):
            total = sum((getattr(thread, kind) for _, thread in threads), collections.Counter())
            return {key: round(count / samples, 4) for key, count in total.most_common()}

        return {
            "name": name,
            "threads": lasted,
            "cpu_s": round(samples * PERIOD_NS / 1e9, 3),
            "busy": round(samples * PERIOD_NS / max(lives, 1), 3),
            "busy_where_it_ran": round(samples * PERIOD_NS / (windows * WINDOW_NS), 3),
            "kernel": round(sum(thread.system for _, thread in threads) / samples, 3),
            "switches_voluntary": voluntary,
            "switches_forced": forced,
            "parts": shares("parts"),
            "functions": shares("functions"),
        }


def kernel_part(chain):
    """The system call that the kernel worked for, or else the fault or interrupt."""
    call = next((found[1] for found in map(SYSTEM_CALL.match, reversed(chain)) if found), None)
    work = ", softirq" if not SOFTIRQ.isdisjoint(chain) else ""
    if call:
        return f"{call}(){work}"
    if work:
        return "softirq alone"
    if any(map(FAULT.match, chain)):
        return "page faults"
    return "interrupts" if any(map(INTERRUPT.match, chain)) else "rest of the kernel"


def kernel_thread(chain):
    """A name for what is not of the command: the kernel's own threads for the network, or anything else."""
    return SOFTIRQ_THREAD if "run_ksoftirqd" in chain else OTHERS


class Symbols:
    """Names of functions by address."""

    def __init__(self, symbols):
        self.symbols = sorted(symbols)
        self.starts = [start for start, _, _ in self.symbols]

    def name(self, address):
        at = bisect.bisect_right(self.starts, address) - 1
        if at < 0:
            return None
        start, size, name = self.symbols[at]
        return plain(name) if not size or address < start + size else None

    @staticmethod
    def of_file(path):
        """Functions of an ELF file by their place in the file. Empty where there is no such file."""
        try:
            with open(path, "rb") as file:
                return Symbols(elf_functions(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
        except (OSError, ValueError, struct.error):
            return Symbols([])


class Kernel(Symbols):
    """Functions of the kernel, each looked up once."""

    def __init__(self):
        lines = (line.split() for line in open("/proc/kallsyms"))
        super().__init__((int(words[0], 16), 0, words[2]) for words in lines if words[1] in "tTwW")
        self.known = {}

    def name(self, address):
        if address not in self.known:
            self.known[address] = super().name(address) or "?"
        return self.known[address]


def elf_functions(data):
    if data[:6] != b"\x7fELF\x02\x01":
        return []
    program_at, section_at = struct.unpack_from("<QQ", data, 32)
    program_size, programs, section_size, sections = struct.unpack_from("<HHHH", data, 54)
    segments = [struct.unpack_from("<IIQQQQ", data, program_at + at * program_size) for at in range(programs)]
    loaded = [(address, size, offset - address) for kind, _, offset, address, _, size in segments if kind == 1]
    headers = [struct.unpack_from("<IIQQQQII", data, section_at + at * section_size) for at in range(sections)]
    tables = {header[1]: header for header in headers}
    symbol_table, dynamic_table = 2, 11
    table = tables.get(symbol_table) or tables.get(dynamic_table)
    if table is None:
        return []
    names_at = headers[table[6]][4]
    found = []
    for name, info, _, _, value, size in struct.iter_unpack("<IBBHQQ", data[table[4]:table[4] + table[5]]):
        function, indirect = 2, 10
        if info & 15 in (function, indirect) and value:
            shift = next((shift for address, length, shift in loaded if address <= value < address + length), 0)
            text = data[names_at + name:data.find(b"\0", names_at + name)].decode(errors="replace")
            found.append((value + shift, size, text))
    return found


def plain(symbol):
    """A Rust path instead of its mangled name, without the hash and the list of vector instructions."""
    if not symbol.startswith("_ZN"):
        return symbol
    parts, at = [], 3
    while at < len(symbol) and symbol[at].isdigit():
        length = re.match(r"\d+", symbol[at:])[0]
        at += len(length)
        parts.append(symbol[at:at + int(length)])
        at += int(length)
    if parts and re.fullmatch(r"h[0-9a-f]{16}", parts[-1]):
        parts.pop()
    text = "::".join(parts).replace("..", "::")
    for escape, character in (("$LT$", "<"), ("$GT$", ">"), ("$u20$", " "), ("$RF$", "&"), ("$C$", ","), ("$BP$", "*")):
        text = text.replace(escape, character)
    text = re.sub(r"\$u([0-9a-f]{2})\$", lambda code: chr(int(code[1], 16)), text)
    return re.sub(r"_(?:avx|sse|x86)\w*_version$", " (vectors)", text.lstrip("_"))


def crate_of(name):
    """The crate of a Rust path: of `<a::B as c::D>::e` it is `a`."""
    found = re.match(r"[<&*( ]*(?:mut |const )?(\w+)::", name or "")
    return found and found[1]


def text(document, least):
    lines = [f"{document['wall_s']} s, {document['lost']} records lost"]
    for thread in document["threads"]:
        if 100 * thread["cpu_s"] < least * document["wall_s"]:
            continue
        lines.append("")
        lines.append(
            f"{thread['name']} × {thread['threads']}: {thread['cpu_s']} s, {thread['busy']:.0%} busy, "
            f"{thread['busy_where_it_ran']:.0%} where it ran; in the kernel {thread['kernel']:.0%}; "
            f"switches {thread['switches_voluntary']} voluntary, {thread['switches_forced']} forced"
        )
        for title in ("parts", "functions"):
            named = [f"{share:.1%} {name}" for name, share in thread[title].items() if 100 * share >= least]
            lines.append(f"  {title}: " + "; ".join(named))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
