#!/usr/bin/env python3
"""Checks a switch that runs p4/flowgauge.p4, with the vendor's own client (bfrt_grpc).

It does the checks of "What to check first" in README.md that need no second switch, on a switch that is there (--address) or on the vendor's
simulator, which it starts (--simulator). It prints a line for each check and ends with 1 if one failed.

The client is `bfrt_grpc` of the SDE: $SDE_INSTALL/lib/python3*/site-packages/tofino must be in PYTHONPATH.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

# An address, 10.0.0.1, and its CRC in the program.
ADDRESS, HASH = 0x0A000001, 0xA757B578
# The port that the simulator has at veth0, whose other end is veth1.
SIMULATED_PORT, SIMULATED_END = 0, "veth1"
PORTS = {"PortToVeth": [{"device_port": SIMULATED_PORT, "veth1": 0, "veth2": 1}]}
BFRUNTIME = 50052
# Fields of a window that depend on its place and time instead of its packets.
OF_PLACE = {
    "record", "window", "start_ns", "end_ns", "scheduled_start_ns", "scheduled_end_ns", "late_ns", "complete", "backend", "interface",
    "direction", "part", "host", "run", "drops", "clock",
}


class Failed(Exception):
    pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    switch = parser.add_mutually_exclusive_group(required=True)
    switch.add_argument("--address", help="a switch, as host:port")
    switch.add_argument("--simulator", metavar="FOLDER", help="where the SDE is installed ($SDE_INSTALL); as root")
    parser.add_argument("--compiled", metavar="FOLDER", help="what the compiler wrote of the program, for --simulator")
    parser.add_argument("--program", default="flowgauge", help="the program's name on the switch")
    parser.add_argument("--flowgauge", metavar="FILE", help="the command; with it a capture is counted on the switch and in software")
    parser.add_argument("--options", default="", help="what flowgauge is to measure; must fit the program")
    parser.add_argument("--run-options", default="", help="options of `flowgauge run` alone")
    parser.add_argument("--capture", metavar="FILE", help="the capture; 3,000 packets are generated without")
    parser.add_argument("--interface", help="where frames go that the switch is to count, at the other end of its port")
    parser.add_argument("--digests", type=float, metavar="SECONDS", help="wait so long for a digest")
    parser.add_argument("--on-input", action="store_true", help="read registers only after a line of input")
    arguments = parser.parse_args()
    if arguments.simulator and not arguments.compiled:
        parser.error("--simulator needs --compiled, which has bfrt.json and pipe/")
    with contextlib.ExitStack() as stack:
        if arguments.simulator:
            arguments.address = f"127.0.0.1:{BFRUNTIME}"
            arguments.interface = arguments.interface or SIMULATED_END
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="flowgauge-"))
            simulator(stack, arguments, pathlib.Path(scratch))
        return run(arguments)


def run(arguments):
    ok = True
    # flowgauge binds the program, and so does this script: one after the other.
    checks = [("capture", capture), ("read times", read_times)] if arguments.flowgauge else []
    for name, check in [*checks, ("client", client)]:
        try:
            told = check(arguments)
        except Failed as failure:
            ok, told = False, str(failure)
            print(f"FAILED {name}: {told}", flush=True)
        else:
            print(f"ok {name}: {told}", flush=True)
    return 0 if ok else 1


def simulator(stack, arguments, scratch):
    """Starts the vendor's simulator and driver, as its run_tofino_model.sh and run_switchd.sh do."""
    install = pathlib.Path(arguments.simulator).resolve()
    compiled = pathlib.Path(arguments.compiled).resolve()
    program = {
        "program-name": arguments.program,
        "bfrt-config": str(compiled / "bfrt.json"),
        "p4_pipelines": [
            {
                "p4_pipeline_name": "pipe",
                "context": str(compiled / "pipe/context.json"),
                "config": str(compiled / "pipe/tofino.bin"),
                "pipe_scope": [0, 1, 2, 3],
                "path": str(compiled),
            }
        ],
    }
    for needed in [program["bfrt-config"], program["p4_pipelines"][0]["context"], program["p4_pipelines"][0]["config"]]:
        if not os.path.exists(needed):
            raise SystemExit(f"{needed} is missing; compile p4/flowgauge.p4 with `p4c --target tofino --arch tna -o {compiled}`")
    chip = {
        "id": "asic-0", "chip_family": "Tofino", "instance": 0, "pcie_sysfs_prefix": "/sys/devices/pci0000:00/0000:00:03.0/0000:05:00.0",
        "pcie_domain": 0, "pcie_bus": 5, "pcie_fn": 0, "pcie_dev": 0, "pcie_int_mode": 1,
        "sds_fw_path": "share/tofino_sds_fw/avago/firmware",
    }
    device = {"device-id": 0, "agent0": "lib/libpltfm_mgr.so", "p4_programs": [program]}
    conf, ports = scratch / f"{arguments.program}.conf", scratch / "ports.json"
    conf.write_text(json.dumps({"chip_list": [chip], "p4_devices": [device], "instance": 0}))
    ports.write_text(json.dumps(PORTS))
    subprocess.run(["ip", "link", "add", "veth0", "type", "veth", "peer", "name", SIMULATED_END], check=True)
    stack.callback(subprocess.run, ["ip", "link", "del", "veth0"], check=False)
    for end in ["veth0", SIMULATED_END]:
        subprocess.run(["ip", "link", "set", end, "mtu", "10240", "up"], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{install}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    model = ["tofino-model", "--p4-target-config", conf, "--install-dir", install, "-d", "1", "-f", ports, "--chip-type", "2"]
    driver = ["bf_switchd", "--background", "--server-listen-local-only", "--install-dir", install, "--conf-file", conf]
    for command in [[*model, "--logs-disable"], driver]:
        log = stack.enter_context(open(scratch / f"{command[0]}.log", "wb"))
        found = shutil.which(str(command[0]), path=f"{install}/bin")
        if found is None:
            raise SystemExit(f"there is no {command[0]} in {install}/bin")
        process = subprocess.Popen([found, *command[1:]], env=environment, stdout=log, stderr=log, cwd=scratch)
        stack.callback(end_process, process)
        started = process
    for _ in range(180):
        if started.poll() is not None:
            raise SystemExit(f"bf_switchd ended: {(scratch / 'bf_switchd.log').read_text(errors='replace')[-2000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", BFRUNTIME), timeout=1):
            return
        time.sleep(1)
    raise SystemExit("bf_switchd does not answer after three minutes")


def end_process(process):
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def flowgauge(arguments, *command):
    return [arguments.flowgauge, *command]


def called(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def frames(path):
    """Frames of a capture in the classic format, as long as they were on the wire."""
    data = pathlib.Path(path).read_bytes()
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}.get(data[:4])
    if order is None:
        raise Failed(f"{path} is no capture in the classic format; `editcap -F pcap` converts it")
    at = 24
    while at < len(data):
        captured, original = struct.unpack_from(order + "II", data, at + 8)
        frame = data[at + 16 : at + 16 + captured]
        # Shorter frames are filled up on their way.
        yield frame.ljust(max(60, original), b"\0")
        at += 16 + captured


def capture(arguments):
    """Checks 2, 3, 6 and 7: the switch counts a capture as software does."""
    if not arguments.interface:
        raise Failed("--interface is needed to send frames to the switch")
    options = ["--window", "1h", "--format", "json", *arguments.options.split()]
    with tempfile.TemporaryDirectory(prefix="flowgauge-") as scratch:
        path = arguments.capture
        if path is None:
            path = f"{scratch}/capture.pcap"
            called(flowgauge(arguments, "generate", "zipf,flows=500,rate=10k,packets=3000", "--to", path))
        sent = list(frames(path))
        # Frames as they are sent, so that lengths are equal.
        whole = f"{scratch}/whole.pcap"
        with open(whole, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
            for number, frame in enumerate(sent):
                file.write(struct.pack("<IIII", number // 1000, number % 1000 * 1000, len(frame), len(frame)) + frame)
        expected = window(called(flowgauge(arguments, "replay", whole, *options)))
        command = flowgauge(arguments, "run", "--address", arguments.address, "--sample-every", "100ms", *options,
                            *arguments.run_options.split())
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            # The first record comes when the switch counts.
            first = running.stdout.readline()
            if not first:
                raise Failed(f"{' '.join(command)}: {running.stderr.read().strip()}")
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
                wire.bind((arguments.interface, 0))
                for frame in sent:
                    wire.send(frame)
            latest = json.loads(first)
            while latest.get("packets", 0) < len(sent):
                line = running.stdout.readline()
                if not line:
                    raise Failed(f"the run ended: {running.stderr.read().strip()}")
                latest = json.loads(line)
            running.send_signal(signal.SIGINT)
            found = window(running.communicate()[0])
        finally:
            end_process(running)
    differences = [f"{key}: {found.get(key)} and not {expected.get(key)}" for key in expected if found.get(key) != expected[key]]
    if differences:
        raise Failed("; ".join(differences))
    return f"{len(sent)} packets, equal to software in {', '.join(expected)}"


def window(records):
    records = [json.loads(line) for line in records.splitlines()]
    windows = [record for record in records if record["record"] == "window" and record["packets"] > 0]
    if len(windows) != 1:
        raise Failed(f"{len(windows)} windows with packets and not one")
    return of_packets(windows[0])


def of_packets(record):
    if isinstance(record, dict):
        return {key: of_packets(value) for key, value in record.items() if key not in OF_PLACE}
    return [of_packets(item) for item in record] if isinstance(record, list) else record


def read_times(arguments):
    """Check 9."""
    for _ in range(20):
        done = subprocess.run(
            flowgauge(arguments, "tables", "--read-times", "--address", arguments.address, "--format", "json"),
            capture_output=True, text=True,
        )
        # The run before is gone, but the switch may not have noticed yet.
        if "subscribed already" not in done.stderr:
            break
        time.sleep(0.2)
    if done.returncode != 0:
        raise Failed(done.stderr.strip())
    times = json.loads(done.stdout)
    return f"a rotation takes up to {times['rotation_ns'] / 1e6:.1f} ms; shortest window {times['shortest_window_ns'] / 1e6:.1f} ms"


def client(arguments):
    """Checks 1, 4 and 11, with the vendor's client."""
    try:
        import bfrt_grpc.client as client
    except ImportError as error:
        raise Failed(f"{error}; put the SDE's site-packages/tofino into PYTHONPATH") from error
    wanted = client.Notifications(enable_learn=True, enable_idletimeout=False, enable_port_status_change=False)
    interface = client.ClientInterface(arguments.address, client_id=7, device_id=0, notifications=wanted)
    try:
        for attempt in range(20):
            try:
                interface.bind_pipeline_config(arguments.program)
                break
            except client.BfruntimeForwardingRpcException as error:
                if attempt == 19:
                    raise Failed(f"another client has bound {arguments.program}: {error}") from error
                time.sleep(0.2)
        info = interface.bfrt_info_get(arguments.program)
        names = sorted(str(name) for name in info.table_name_list_get())
        told = {"tables": len(names), "hash": hash_of(client, info, names)}
        if told["hash"] is not None and told["hash"] != HASH:
            raise Failed(f"the chip's CRC of 10.0.0.1 is {told['hash']:#010x} and not {HASH:#010x}")
        if arguments.on_input:
            print("ready", flush=True)
            sys.stdin.readline()
        told["registers"] = registers(client, info, names)
        if arguments.digests is not None:
            told["digests"] = digests(interface, info, arguments.digests)
        return json.dumps(told)
    finally:
        interface.tear_down_stream()


def hash_of(client, info, names):
    """Returns the value of the hash unit for 10.0.0.1; None if the program has no key of source addresses."""
    name = next((name for name in names if name.endswith("hash.src.ipv4_crc.compute")), None)
    if name is None:
        return None
    table = info.table_get(name)
    key = table.make_key([client.KeyTuple(next(iter(table.info.key_field_name_list_get())), ADDRESS)])
    # Behind data and key some servers also say for which pipes they are.
    data = next(table.entry_get(client.Target(device_id=0, pipe_id=0xFFFF), [key], {"from_hw": False}))[0]
    values = data.to_dict()
    value = next(value for name, value in values.items() if name.endswith("hash_value"))
    return int.from_bytes(value, "big") if isinstance(value, bytes) else int(value)


def registers(client, info, names):
    """Of every register, what its elements add up to in each pipe, by field: copied from the chip as a whole, then read in the driver's memory."""
    target = client.Target(device_id=0, pipe_id=0xFFFF)
    sums = {}
    for name in names:
        table = info.table_get(name)
        if not name.startswith("pipe.Ingress.flowgauge.") or "$REGISTER_INDEX" not in table.info.key_field_name_list_get():
            continue
        table.operations_execute(target, "Sync")
        for data, *_ in table.entry_get(target, None, {"from_hw": False}):
            for field, values in data.to_dict().items():
                if isinstance(values, list):
                    place = sums.setdefault(f"{name}:{field.rsplit('.', 1)[-1]}", [0] * len(values))
                    for pipe, value in enumerate(values):
                        place[pipe] += value
    return sums


def digests(interface, info, longest):
    found = []
    for name in info.learn_name_list_get():
        learn = info.learn_get(name)
        for message in interface.digest_get_iterator(timeout=longest):
            found += [entry.to_dict() for entry in learn.make_data_list(message)]
    if not found:
        raise Failed(f"no digest came in {longest} s")
    return found


if __name__ == "__main__":
    sys.exit(main())
