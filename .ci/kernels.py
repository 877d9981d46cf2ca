"""Makes the captures of .ci/kernels, judges what its virtual machines counted, and prints the table of the results.

    kernels.py capture CACHE        needs FLOWGAUGE
    kernels.py judge CACHE KERNEL   needs FLOWGAUGE; prints a RESULT line for each case; exit code 1 if one is bad
    kernels.py table CACHE
"""

import json
import math
import os
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

# Packets of the capture, by profile: many flows, round trips, packets out of order.
PROFILES = [
    ("zipf,flows=1k,packets=2k", 2000),
    ("delay,shape=conversations,requests=500", 1500),
    ("reorder,packets=1500,prefixes=40,heavy=2,share=0.2,flows=100", 1500),
]
PACKETS = sum(packets for _, packets in PROFILES)
PACKETS_PER_SECOND = 5000
LINKTYPE_ETHERNET, LINKTYPE_RAW = 1, 101

# Keys of a record that a replay has otherwise: where and when packets were counted.
PLACE_AND_TIME = {
    "start_ns", "end_ns", "scheduled_start_ns", "scheduled_end_ns", "late_ns", "complete", "backend", "interface", "direction",
    "hook", "form", "part", "host", "run", "source", "cpu_ns", "ledger", "late", "drops", "stalled", "alerts",
}
# Of delays, what depends on the clock. Counts of requests and answers do not.
CLOCK = {
    "delay": {"clock", "resolution_ns", "raw", "corrected"},
    "sketches": {"delay", "delay_clock", "delay_buckets", "delay_resolution_ns", "delay_directions"},
}
FIRST_WITH_TCX = (6, 6)


def flowgauge(*arguments):
    return subprocess.run([os.environ["FLOWGAUGE"], *arguments], check=True, capture_output=True, text=True).stdout


def capture(cache):
    """Writes packets of all profiles, one every 200 µs: with their Ethernet headers, and without."""
    frames = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (profile, packets) in enumerate(PROFILES):
            file = Path(folder, f"{number}.pcap")
            flowgauge("generate", profile, "--to", str(file))
            content = file.read_bytes()
            header, offset, taken = content[:24], 24, 0
            while taken < packets:
                length = struct.unpack_from("<I", content, offset + 8)[0]
                frames.append(content[offset + 16:offset + 16 + length])
                offset += 16 + length
                taken += 1
    step_ns = 1_000_000_000 // PACKETS_PER_SECOND
    for name, link_type, header_bytes in [("capture.pcap", LINKTYPE_ETHERNET, 0), ("capture-ip.pcap", LINKTYPE_RAW, 14)]:
        with open(cache / name, "wb") as out:
            out.write(header[:20] + struct.pack("<I", link_type))
            for number, frame in enumerate(frames):
                seconds, ns = divmod(number * step_ns, 1_000_000_000)
                packet = frame[header_bytes:]
                out.write(struct.pack("<IIII", seconds, ns, len(packet), len(packet)) + packet)


def records(text, kind):
    """Records of one kind; of several places the one of all together."""
    parsed = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [record for record in parsed if record["record"] == kind and not record["part"]]


def both_directions(delays):
    """Delays of either direction added up, kind by kind; those of a replay have none."""
    kinds = {}
    for delay in delays:
        kind = kinds.setdefault(delay["kind"], dict.fromkeys(("requests", "admitted", "answers"), 0))
        counts = {key: kind[key] + delay[key] for key in ("requests", "admitted", "answers")}
        kind.update({key: value for key, value in delay.items() if key != "direction"})
        kind.update(counts)
        # An estimate of each direction: of requests that are answered in the other one it says nothing.
        if "direction" in delay:
            kind["unanswered"] = None
    return list(kinds.values())


def comparable(record):
    kept = {}
    for key, value in record.items():
        if key in PLACE_AND_TIME:
            continue
        if key == "delay":
            value = [{k: v for k, v in kind.items() if k not in CLOCK["delay"]} for kind in both_directions(value)]
        if key == "sketches":
            value = {k: v for k, v in value.items() if k not in CLOCK["sketches"]}
        kept[key] = value
    return kept


# Relative difference that estimates from equal registers may have: none, but on another architecture, which fuses multiplications and
# additions. Registers and counts are integers, and equal everywhere.
ROUNDING = {"of estimates": 0.0}


def difference(ours, theirs, path=""):
    """Path and values of the first difference, or None."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            found = difference(ours.get(key), theirs.get(key), f"{path}.{key}" if path else key)
            if found:
                return found
        return None
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, pair in enumerate(zip(ours, theirs)):
            found = difference(*pair, f"{path}[{index}]")
            if found:
                return found
        return None
    if isinstance(ours, float) and isinstance(theirs, float) and math.isclose(ours, theirs, rel_tol=ROUNDING["of estimates"]):
        return None
    if ours == theirs:
        return None
    return f"{path} is {str(ours)[:60]}, of a replay {str(theirs)[:60]}"


def unmatched(record):
    """Packets that --match left out."""
    return record.get("unmatched", {}).get("packets", 0)


class Judge:
    def __init__(self, cache):
        self.cache = cache
        self.replays = {}

    def replayed(self, capture, counting):
        if (capture, counting) not in self.replays:
            options = counting.replace("/key", str(self.cache / "key")).split()
            if "heavy" in counting:
                options += ["--algorithm", "d-way-rap"]
            text = flowgauge("replay", str(self.cache / capture), "--window", "10m", "--format", "json", "--sketches", *options)
            [record] = records(text, "window")
            self.replays[capture, counting] = comparable(record)
        return self.replays[capture, counting]

    def errors(self, case, meta, files):
        """Yields the problems of a case, in words."""
        log = messages(files)
        runs = [name for name in ("run", "first", "second") if f"{name}.json" in files]
        if not runs:
            yield f"no run was started: {log[-400:]}"
            return
        for run in runs:
            if meta.get(f"{run}.ready") is None:
                yield f"{run} did not begin (exit code {meta.get(f'{run}.rc')}): {log[-400:]}"
                return
        killed = case["scenario"] == "kill_adopt"
        for run in runs:
            if not (killed and run == "first") and meta.get(f"{run}.rc") != "0":
                yield f"exit code {meta.get(f'{run}.rc')} of {run}: {log[-400:]}"
        sent = sum(int(n) for n in meta.all("sent"))
        passes, rest = divmod(sent, PACKETS)
        if rest or passes < {"kill_adopt": 1, "leave_adopt": 3}.get(case["scenario"], 1):
            yield f"{sent} packets were sent, not {PACKETS}: {log[-200:]}"
        windows = {}
        for run in runs:
            for window in records(files[f"{run}.json"], "window"):
                # Documented: a run killed between printing a window and noting it publishes it again.
                if windows.setdefault(window["window"], window)["packets"] != window["packets"]:
                    yield f"window {window['window']} came twice, with different numbers"
        counted = sum(window["packets"] + unmatched(window) for window in windows.values())
        meta["counted"] = counted
        if counted != sent:
            yield f"counted {counted} of {sent} packets"
        yield from self.unbalanced(files[f"{runs[-1]}.json"])
        if len(runs) == 1 and counted == sent:
            [window] = windows.values()
            ours, theirs = comparable(window), self.replayed(meta["capture"], case["counting"])
            if any(kind["unanswered"] is None for kind in ours.get("delay", [])):
                theirs = {**theirs, "delay": [{**kind, "unanswered": None} for kind in theirs["delay"]]}
            found = difference(ours, theirs)
            if found:
                yield found

    def unbalanced(self, text):
        """Yields the problems of the ledger of the last window: unaccounted packets are those since the run began."""
        ledger = records(text, "window")[-1].get("ledger")
        if ledger is None:
            yield "the last window has no ledger"
        elif ledger["unaccounted"] != 0 or ledger["received"] != ledger["counted"] + ledger.get("unmatched", 0) + ledger["lost"]:
            yield f"the ledger does not balance: {ledger}"

    def wrong_hook(self, name, hook, version):
        """Whether the record names another hook than the case asks for."""
        first, second = name.split("/")[:2]
        in_stack = "tcx" if version >= FIRST_WITH_TCX else "clsact"
        wanted = {"native": "native", "skb": "skb", "tcx": "tcx", "clsact": "clsact", "egress": in_stack}
        # On the veth; which hook a card has depends on its driver.
        wanted = in_stack if first == "auto" else wanted.get(first) or wanted.get(second)
        if "auto" in (first, second) and not hook:
            yield "the record does not say by which hook it was counted"
        if wanted and hook and hook != wanted:
            yield f"counted by the hook {hook}, not {wanted}"

    def refusal(self, case, meta, files, version):
        """Whether a case must be refused, and what is wrong with how it was."""
        if not (case["name"].startswith("tcx/") and version < FIRST_WITH_TCX):
            return None
        if "needs Linux 6.6" not in messages(files) or meta.get("run.rc") not in ("1", "2"):
            return f"must end with 'needs Linux 6.6': exit code {meta.get('run.rc')}: {messages(files)[-300:]}"
        return ""


def messages(files):
    """Returns what the runs of a case printed to standard error, without the addresses on which they listen."""
    return "\n".join(line for line in files.get("log", "").splitlines() if "http://" not in line).strip()


class Meta(dict):
    """Lines KEY=VALUE, of which some come several times."""

    def __init__(self, text):
        self.pairs = [line.split("=", 1) for line in text.splitlines() if "=" in line]
        super().__init__(self.pairs)

    def all(self, key):
        return [value for name, value in self.pairs if name == key and value]


def results(image):
    """Files of each case, in the order of the cases."""
    cases = []
    with tarfile.open(image, ignore_zeros=True) as archive:
        for member in archive:
            if member.isdir():
                cases.append({})
            else:
                cases[-1][Path(member.name).name] = archive.extractfile(member).read().decode(errors="replace")
    return {Meta(files["meta"])["name"]: files for files in cases}


def judge(cache, kernel):
    folder = cache / kernel
    if kernel.endswith("-arm64") and os.uname().machine != "aarch64":
        ROUNDING["of estimates"] = 2**-49
    judge = Judge(cache)
    try:
        done = results(folder / "results.img")
    except tarfile.ReadError:
        done = {}
    rows = []
    for line in (folder / "cases").read_text().splitlines():
        name, scenario, _, _, counting = line.split("|")
        case = {"name": name, "scenario": scenario.split()[0], "counting": counting}
        files = done.get(name)
        row = {"kernel": kernel, "case": name, "verdict": "BAD"}
        if files is None:
            row["text"] = "did not run"
        else:
            meta = Meta(files["meta"])
            row["release"] = meta["kernel"]
            version = tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", meta["kernel"]).groups())
            refused = judge.refusal(case, meta, files, version)
            hook = re.search(r'"hook":"([^"]*)"', files.get("run.json", "") + files.get("second.json", ""))
            hook = row["hook"] = hook and hook.group(1)
            if refused is None:
                try:
                    errors = list(judge.errors(case, meta, files))
                    errors += judge.wrong_hook(name, hook, version) if not errors else []
                except Exception as error:  # A record of another shape is a bad case, not the end of the others.
                    errors = [f"cannot be judged: {error!r}"]
                row["verdict"] = "BAD" if errors else "ok"
                row["text"] = "; ".join(errors) or f"{meta['counted']} of {meta['counted']} packets, ledger balanced"
            else:
                row["verdict"] = "BAD" if refused else "refused"
                row["text"] = refused or "needs Linux 6.6, as it must say"
            if "queues" in meta:
                row["text"] += f", {' '.join(meta.all('queues'))} queues"
            seconds = f" in {meta.get('seconds')} s, ready after {meta.get('run.ready') or meta.get('second.ready')} s"
            row["text"] = " ".join(row["text"].split()) + (f", hook {hook}" if hook else "")
        rows.append(row)
        print(f"RESULT {row['verdict']} {name}: {row['text']}" + (seconds if files else ""))
    (folder / "results.json").write_text(json.dumps(rows))
    bad = sum(row["verdict"] == "BAD" for row in rows)
    release = next((row["release"] for row in rows if "release" in row), "did not boot")
    print(f"SUMMARY {kernel} ({release}): {len(rows) - bad} of {len(rows)} cases")
    return 1 if bad or not rows else 0


MEASUREMENTS = ["cardinality", "entropy", "frequency", "membership", "heavy", "spread", "sizes", "reorder", "delay", "seven", "everything"]
HOOKS = ["native", "skb", "tcx", "clsact", "egress"]


def version(kernel):
    return [int(n) for n in re.findall(r"\d+", kernel.removesuffix("-arm64"))], kernel


def cell(verdicts, kernels):
    """Kernels on which a case holds, in few words."""
    exact = [kernel for kernel in kernels if verdicts.get(kernel) == "ok"]
    if len(exact) == len(kernels):
        return "all"
    refused = all(verdicts.get(kernel) in ("ok", "refused") for kernel in kernels)
    return (", ".join(exact) or ("none" if verdicts else "not run")) + (" (from 6.6)" if refused else "")


def table(cache):
    """Prints which measurement counts exactly at which hook of which kernel."""
    rows = [row for file in cache.glob("*/results.json") for row in json.loads(file.read_text())]
    if not rows:
        sys.exit(f"{cache}: no results; run .ci/kernels first")
    kernels = sorted({row["kernel"] for row in rows}, key=version)
    by_case = {}
    for kernel in kernels:
        for row in rows:
            if row["kernel"] == kernel:
                by_case.setdefault(row["case"], {})[kernel] = row["verdict"]

    def line(*cells):
        print("| " + " | ".join(cells) + " |")

    line("kernel", "release", "cases that hold")
    line("---", "---", "---")
    for kernel in kernels:
        own = [row for row in rows if row["kernel"] == kernel]
        release = next((row["release"] for row in own if "release" in row), "did not boot")
        line(kernel, f"`{release}`", f"{sum(row['verdict'] != 'BAD' for row in own)} of {len(own)}")
    print()
    line("measurement", *HOOKS)
    line("---", *["---"] * len(HOOKS))
    for measurement in MEASUREMENTS:
        line(measurement, *[cell(by_case.pop(f"{hook}/{measurement}", {}), kernels) for hook in HOOKS])
    print()
    line("other cases", "hold on")
    line("---", "---")
    for case, verdicts in by_case.items():
        line(case, cell(verdicts, kernels))


def main():
    match sys.argv[1:]:
        case ["capture", cache]:
            capture(Path(cache))
        case ["judge", cache, kernel]:
            sys.exit(judge(Path(cache), kernel))
        case ["table", cache]:
            table(Path(cache))
        case _:
            sys.exit(__doc__)


main()
