/** An attempt to get out of a kernel. */
export interface Escape {
  id: string;
  /** The body of a Python function that returns True if it succeeded. */
  code: string;
}

/** Code that attempts share: `T` has the targets of `escape-target.ts`. */
export const PREAMBLE = `
import ctypes, errno, fcntl, json, os, platform, resource, signal, socket, stat, struct, subprocess, sys, time
T = json.loads(os.environ["TARGET"])
HERE = os.getcwd()
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
NUMBERS = {
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "openat2": (437, 437), "openat": (257, 56),
    "io_uring_setup": (425, 425), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "fanotify_init": (300, 262),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "execveat": (322, 281), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438), "rt_sigqueueinfo": (129, 138), "tgkill": (234, 131), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "ioprio_set": (251, 30), "unshare": (272, 97), "clone": (56, 220), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "add_key": (248, 217), "bpf": (321, 280), "personality": (135, 92), "syslog": (103, 116), "acct": (163, 89), "shmget": (29, 194),
    "shmctl": (31, 195), "mq_open": (240, 180), "fsopen": (430, 430), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "fchmodat": (268, 53), "utimensat": (280, 88), "open_tree": (428, 428), "msgget": (68, 186), "sched_setaffinity": (203, 122), "swapon": (167, 224),
}

def call(name, *args):
    number = NUMBERS[name][platform.machine() == "aarch64"]
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return result

def in_child(act):
    """Whether an act succeeds in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if act() else 1)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0

def connects(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        return True

def reads(path):
    with open(path, "rb") as file:
        return len(file.read(16)) > 0

def tried(attempt):
    try:
        return bool(attempt())
    except BaseException as error:
        print(repr(error))
        return False
`;

const FILES: Record<string, string> = {
  'read-host-file': `return open(T["secret"]).read() == "secret"`,
  'read-shadow': `return reads("/etc/shadow")`,
  'read-passwd': `return reads("/etc/passwd")`,
  'list-home-of-root': `return os.listdir("/root") is not None`,
  'list-host-folder': `return len(os.listdir(T["folder"])) > 0`,
  'scan-host-folder': `return any(True for _ in os.scandir(T["folder"]))`,
  'append-to-host-file': `
    with open(T["file"], "a") as file: file.write("x")
    return True`,
  'create-host-file': `
    open(T["folder"] + "/new", "w").close()
    return True`,
  'truncate-host-file': `
    os.truncate(T["file"], 1)
    return True`,
  'delete-host-file': `
    os.unlink(T["deletable"])
    return True`,
  'make-host-folder': `
    os.mkdir(T["folder"] + "/made")
    return True`,
  'remove-host-folder': `
    os.rmdir(T["removable"])
    return True`,
  'rename-host-file': `
    os.rename(T["renamable"], T["renamable"] + "2")
    return True`,
  'move-host-file-here': `
    os.rename(T["movable"], HERE + "/moved")
    return reads(HERE + "/moved")`,
  'hard-link-to-host-file': `
    os.link(T["secret"], HERE + "/hard")
    return reads(HERE + "/hard")`,
  'read-through-link': `
    os.symlink(T["secret"], HERE + "/soft")
    return reads(HERE + "/soft")`,
  'write-through-link-to-folder': `
    os.symlink(T["folder"], HERE + "/folder")
    open(HERE + "/folder/linked", "w").close()
    return True`,
  'make-host-link': `
    os.symlink("/etc/passwd", T["folder"] + "/link")
    return True`,
  'make-host-fifo': `
    os.mkfifo(T["folder"] + "/fifo")
    return True`,
  'read-relative-to-host-folder': `
    def act():
        os.chdir(T["folder"])
        return reads("secret")
    return in_child(act)`,
  'read-by-descriptor-of-folder': `
    folder = os.open(T["folder"], os.O_PATH)
    return os.read(os.open("secret", os.O_RDONLY, dir_fd=folder), 1) == b"s"`,
  'read-by-openat': `return call("openat", -100, T["secret"].encode(), 0) >= 0`,
  'read-by-openat2': `
    return call("openat2", -100, T["secret"].encode(), struct.pack("QQQ", 0, 0, 0), 24) >= 0`,
  'read-by-handle': `
    handle, mount = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128)), ctypes.c_int()
    call("name_to_handle_at", -100, T["secret"].encode(), handle, ctypes.byref(mount), 0)
    return call("open_by_handle_at", os.open(os.path.dirname(T["secret"]), os.O_RDONLY), handle, 0) >= 0`,
  'leave-by-dots': `return reads(HERE + "/../../../../../../../.." + T["secret"])`,
  'change-mode': `
    os.chmod(T["file"], 0o640)
    return stat.S_IMODE(os.stat(T["file"]).st_mode) == 0o640`,
  'change-mode-by-raw-call': `
    call("fchmodat", -100, T["file"].encode(), 0o604)
    return stat.S_IMODE(os.stat(T["file"]).st_mode) == 0o604`,
  'change-mode-of-interpreter': `
    place = os.open(T["interpreterFile"], os.O_RDONLY)
    before = stat.S_IMODE(os.fstat(place).st_mode)
    os.fchmod(place, before ^ 0o002)
    after = stat.S_IMODE(os.fstat(place).st_mode)
    os.fchmod(place, before)
    return after != before`,
  'change-owner': `
    os.chown(T["file"], 12345, 12345)
    return os.stat(T["file"]).st_uid == 12345`,
  'change-times': `
    os.utime(T["file"], (1, 1))
    return os.stat(T["file"]).st_mtime == 1`,
  'change-times-of-interpreter': `
    before = os.stat(T["interpreterFile"]).st_mtime_ns
    os.utime(T["interpreterFile"], ns=(before + 1_000_000_000, before + 1_000_000_000))
    after = os.stat(T["interpreterFile"]).st_mtime_ns
    os.utime(T["interpreterFile"], ns=(before, before))
    return after != before`,
  touch: `
    os.utime(T["file"], (1, 1)) if T["hasNoWall"] else None
    before = os.stat(T["file"]).st_mtime
    os.utime(T["file"])
    return os.stat(T["file"]).st_mtime != before`,
  'touch-by-raw-call': `
    now = struct.pack("QQQQ", 0, 0x3FFFFFFF, 0, 0x3FFFFFFF)
    before = os.stat(T["file"]).st_mtime_ns
    call("utimensat", -100, T["file"].encode(), now, 0)
    return os.stat(T["file"]).st_mtime_ns != before`,
  'set-attribute': `
    os.setxattr(T["file"], "user.escape", b"1")
    return os.getxattr(T["file"], "user.escape") == b"1"`,
  'change-flags-of-interpreter': `
    place, no_dump = os.open(T["interpreterFile"], os.O_RDONLY), 0x40
    before, after = bytearray(8), bytearray(8)
    fcntl.ioctl(place, 0x80086601, before)
    fcntl.ioctl(place, 0x40086602, bytes([before[0] ^ no_dump, *before[1:]]))
    fcntl.ioctl(place, 0x80086601, after)
    fcntl.ioctl(place, 0x40086602, bytes(before))
    return before != after`,
  'write-into-interpreter': `
    place = os.path.dirname(T["interpreterFile"]) + "/escape"
    open(place, "w").close()
    os.unlink(place)
    return True`,
  'write-into-usr': `
    open("/usr/everturn-escape", "w").close()
    os.unlink("/usr/everturn-escape")
    return True`,
  'write-into-etc': `
    open("/etc/everturn-escape", "w").close()
    os.unlink("/etc/everturn-escape")
    return True`,
  'write-into-tools': `
    open(T["tools"] + "/tool.py", "w").close()
    return True`,
  'write-into-skills': `
    open(T["skills"] + "/skill.md", "w").close()
    return True`,
  'read-other-workspace': `return reads(T["other"] + "/workspace/theirs")`,
  'write-other-workspace': `
    open(T["other"] + "/workspace/ours", "w").close()
    return True`,
  'list-other-sandbox': `return len(os.listdir(T["other"])) > 0`,
  'write-other-home': `
    open(T["other"] + "/home/.profile", "w").close()
    return True`,
  'watch-host-folder': `
    watch = call("inotify_init1", 0)
    return call("inotify_add_watch", watch, T["folder"].encode(), 0xFFF) >= 0`,
  'watch-whole-system': `return call("fanotify_init", 0, 0) >= 0`,
};

const DEVICES_AND_PROC: Record<string, string> = {
  'open-kernel-log': `return os.open("/dev/kmsg", os.O_RDONLY) >= 0`,
  'make-device': `
    os.mknod(HERE + "/zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    return reads(HERE + "/zero")`,
  'make-terminal': `return os.openpty()[0] >= 0`,
  'read-environment-of-host': `return T["environment"].encode() in open(f"/proc/{T['host']}/environ", "rb").read()`,
  'read-command-line-of-host': `return reads(f"/proc/{T['host']}/cmdline")`,
  'read-memory-of-host': `return os.open(f"/proc/{T['host']}/mem", os.O_RDONLY) >= 0`,
  'read-files-of-host-process': `return len(os.listdir(f"/proc/{T['host']}/fd")) > 0`,
  'enter-root-of-host': `return reads(f"/proc/{T['host']}/root/etc/passwd")`,
  'read-own-mounts': `return reads("/proc/self/mountinfo")`,
  'write-setting-of-linux': `return os.open("/proc/sys/kernel/hostname", os.O_WRONLY) >= 0`,
  'read-sysfs': `return len(os.listdir("/sys/class/net")) > 0`,
};

const SOCKETS: Record<string, string> = {
  'connect-tcp': `return connects(socket.AF_INET, ("127.0.0.1", T["port"]))`,
  'make-socket-for-ipv6': `return socket.socket(socket.AF_INET6, socket.SOCK_STREAM).fileno() >= 0`,
  'fetch-url': `
    import urllib.request
    return urllib.request.urlopen(f"http://127.0.0.1:{T['port']}/", timeout=2).status == 200`,
  'listen-tcp': `
    server = socket.create_server(("127.0.0.1", 0))
    server.close()
    return True`,
  'serve-with-asyncio': `
    import asyncio
    async def serve():
        # It ignores addresses for which it cannot make a socket.
        return len((await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)).sockets) > 0
    def act(): return asyncio.run(serve())
    return in_child(act)`,
  'send-udp': `return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", T["port"])) == 1`,
  'connect-unix-path': `return connects(socket.AF_UNIX, T["socket"])`,
  'connect-unix-abstract': `return connects(socket.AF_UNIX, "\\0" + T["abstract"])`,
  'send-datagram-to-unix-path': `
    mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    mine.bind(HERE + "/datagrams")
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", HERE + "/datagrams") == 1`,
  'pair-of-datagrams': `return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) is not None`,
  'bind-unix-path': `
    socket.socket(socket.AF_UNIX).bind(HERE + "/bound")
    return True`,
  'raw-packets': `return socket.socket(socket.AF_PACKET, socket.SOCK_RAW).fileno() >= 0`,
  netlink: `return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).fileno() >= 0`,
};

const PROGRAMS: Record<string, string> = {
  'run-program': `return subprocess.run(["/bin/true"]).returncode == 0`,
  'run-in-shell': `return subprocess.run("true", shell=True).returncode == 0`,
  'os-system': `return os.system("true") == 0`,
  'libc-system': `return libc.system(b"true") == 0`,
  exec: `
    def act(): os.execv("/bin/true", ["true"])
    return in_child(act)`,
  'posix-spawn': `return os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1] == 0`,
  'exec-own-script': `
    with open(HERE + "/script", "w") as file: file.write("#!/bin/true\\n")
    os.chmod(HERE + "/script", 0o700)
    def act(): os.execv(HERE + "/script", ["script"])
    return in_child(act)`,
  'exec-interpreter': `
    def act(): os.execv(sys.executable, [sys.executable, "-c", ""])
    return in_child(act)`,
  'exec-from-memory': `
    program = os.memfd_create("program")
    os.write(program, open("/usr/bin/true", "rb").read())
    def act(): os.execve(program, ["true"], {})
    return in_child(act)`,
  execveat: `
    def act(): call("execveat", os.open("/usr/bin/true", os.O_RDONLY), b"", None, None, 0x1000)
    return in_child(act)`,
  'system-calls-of-i386': `
    import mmap
    if platform.machine() != "x86_64": return T["hasNoWall"]
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex("b814000000cd80c3"))  # getpid by int 0x80
    getpid = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    def act(): return getpid() == os.getpid()
    return in_child(act)`,
};

const PROCESSES: Record<string, string> = {
  'signal-stranger': `
    os.kill(T["victim"], signal.SIGCONT)
    return True`,
  'signal-host': `
    os.kill(T["host"], 0)
    return True`,
  'signal-everyone': `
    os.kill(-1, 0)
    return True`,
  'signal-group-of-stranger': `
    os.killpg(T["victim"], 0)
    return True`,
  'signal-by-tgkill': `return call("tgkill", T["victim"], T["victim"], 0) == 0`,
  'signal-by-descriptor': `return call("pidfd_send_signal", call("pidfd_open", T["victim"], 0), 0, None, 0) == 0`,
  'signal-by-queue': `
    information = struct.pack("iiii", signal.SIGCONT, 0, -1, 0) + bytes(112)
    return call("rt_sigqueueinfo", T["victim"], signal.SIGCONT, information) == 0`,
  'signal-by-owner-of-file': `
    fcntl.fcntl(socket.socketpair()[0], fcntl.F_SETOWN, T["victim"])
    return True`,
  'steal-descriptor': `return call("pidfd_getfd", call("pidfd_open", T["victim"], 0), 0, 0) >= 0`,
  'trace-stranger': `
    def act(): return call("ptrace", 0x4206, T["victim"], 0, 0) == 0
    return in_child(act)`,
  'trace-own-child': `
    def act(): return call("ptrace", 0, 0, 0, 0) == 0
    return in_child(act)`,
  'read-memory-of-stranger': `
    here = ctypes.create_string_buffer(8)
    first = int(open(f"/proc/{T['victim']}/maps").readline().split("-")[0], 16)
    local, remote = struct.pack("QQ", ctypes.addressof(here), 8), struct.pack("QQ", first, 8)
    return call("process_vm_readv", T["victim"], local, 1, remote, 1, 0) == 8`,
  'limits-of-stranger': `return resource.prlimit(T["victim"], resource.RLIMIT_NOFILE) is not None`,
  'priority-of-stranger': `
    os.setpriority(os.PRIO_PROCESS, T["victim"], 1)
    return True`,
  'processors-of-stranger': `
    os.sched_setaffinity(T["victim"], os.sched_getaffinity(0))
    return True`,
  'disk-priority-of-stranger': `return call("ioprio_set", 1, T["victim"], 0) == 0`,
  'leave-session': `
    def act():
        os.setsid()
        return True
    return in_child(act)`,
  'leave-group': `
    def act():
        os.setpgid(0, 0)
        return True
    return in_child(act)`,
  'outlive-host': `return libc.prctl(1, 0, 0, 0, 0) == 0`,
  'more-processors': `
    os.sched_setaffinity(0, range(os.cpu_count()))
    return True`,
};

const PRIVILEGES: Record<string, string> = {
  'new-user-namespace': `
    def act(): return call("unshare", 0x10000000) == 0
    return in_child(act)`,
  'new-network-namespace': `
    def act(): return call("unshare", 0x40000000) == 0
    return in_child(act)`,
  'new-mount-namespace': `
    def act(): return call("unshare", 0x00020000) == 0
    return in_child(act)`,
  'clone-into-namespace': `
    child = call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0: os._exit(0)
    return os.waitpid(child, 0)[1] == 0`,
  'join-namespace': `
    def act(): return call("setns", os.open(f"/proc/{T['host']}/ns/net", os.O_RDONLY), 0) == 0
    return in_child(act)`,
  mount: `
    os.mkdir(HERE + "/mounted")
    call("mount", b"escape", (HERE + "/mounted").encode(), b"tmpfs", 0, None)
    return call("umount2", (HERE + "/mounted").encode(), 0) == 0`,
  'open-file-system': `return call("fsopen", b"tmpfs", 0) >= 0`,
  'copy-mount': `return call("open_tree", -100, b"/", 1) >= 0`,
  'change-root': `
    def act():
        os.chroot(HERE)
        return True
    return in_child(act)`,
  'become-other-user': `
    def act():
        os.setuid(12345)
        return True
    return in_child(act)`,
  'become-root': `
    def act():
        os.setresuid(0, 0, 0)
        return True
    return in_child(act)`,
  'join-groups': `
    def act():
        os.setgroups([1, 2])
        return True
    return in_child(act)`,
  'give-own-file-to-all': `
    open(HERE + "/setuid", "w").close()
    os.chmod(HERE + "/setuid", 0o4755)
    return os.stat(HERE + "/setuid").st_mode & stat.S_ISUID != 0`,
  'create-file-for-all': `
    os.close(os.open(HERE + "/created", os.O_CREAT | os.O_WRONLY, 0o4755))
    return os.stat(HERE + "/created").st_mode & stat.S_ISUID != 0`,
  'make-node-for-all': `
    os.mknod(HERE + "/node", stat.S_IFREG | 0o4755)
    return os.stat(HERE + "/node").st_mode & stat.S_ISUID != 0`,
  'add-key': `return call("add_key", b"user", b"escape", b"x", 1, -3) > 0`,
  'load-bpf': `return call("bpf", 0, struct.pack("IIII", 2, 4, 4, 1) + bytes(100), 116) >= 0`,
  'io-uring': `return call("io_uring_setup", 1, ctypes.create_string_buffer(120)) >= 0`,
  'user-page-faults': `return call("userfaultfd", 1) >= 0`,
  'no-random-addresses': `return call("personality", 0x0040000) >= 0`,
  'read-kernel-log': `return call("syslog", 10, None, 0) > 0`,
  'stop-accounting': `return call("acct", None) == 0`,
  'name-the-machine': `
    name = socket.gethostname().encode()
    return libc.sethostname(name, len(name)) == 0`,
  'hidden-shared-memory': `
    segment = call("shmget", 0, 4096, 0o1600)
    return call("shmctl", segment, 0, None) == 0`,
  'hidden-file-in-memory': `return os.memfd_create("hidden") >= 0`,
  'hidden-messages': `return call("msgget", 0, 0o1600) >= 0`,
};

const GROUPS = { FILES, DEVICES_AND_PROC, SOCKETS, PROGRAMS, PROCESSES, PRIVILEGES };

export const ESCAPES: Escape[] = Object.values(GROUPS).flatMap((group) =>
  Object.entries(group).map(([id, code]) => ({ id, code: code.startsWith('\n') ? code.slice(1) : `    ${code}` })),
);

/** A cell that prints `True` as its last line if the attempt succeeds. */
export function cellOf({ code }: Escape): string {
  return `def attempt():\n${code}\nprint(tried(attempt))`;
}
