/** Attempts to get out of a command: bodies of a function of bash that succeeds if the attempt has. `T_*` are the targets. */
const FILES: Record<string, string> = {
  'read-host-file': `[ "$(cat "$T_secret")" = secret ]`,
  'read-shadow': `grep root /etc/shadow`,
  'read-passwd': `grep root /etc/passwd`,
  'list-home-of-root': `ls /root`,
  'list-host-folder': `ls "$T_folder" | grep secret`,
  'find-host-file': `find "$T_folder" -name secret | grep secret`,
  'append-to-host-file': `echo x >> "$T_file"`,
  'create-host-file': `echo x > "$T_folder/new"`,
  'truncate-host-file': `truncate -s 1 "$T_file"`,
  'delete-host-file': `rm "$T_deletable"`,
  'make-host-folder': `mkdir "$T_folder/made"`,
  'remove-host-folder': `rmdir "$T_removable"`,
  'rename-host-file': `mv "$T_renamable" "$T_renamable.2"`,
  'move-host-file-here': `mv "$T_movable" moved`,
  'copy-host-file': `cp "$T_secret" copied`,
  'copy-by-dd': `dd if="$T_secret" of=copied-by-dd`,
  'pack-host-file': `tar cf packed.tar -C "$T_folder" secret`,
  'hard-link-to-host-file': `ln "$T_secret" hard && cat hard`,
  'read-through-link': `ln -s "$T_secret" soft && cat soft`,
  'write-through-link-to-folder': `ln -s "$T_folder" linked && echo x > linked/through`,
  'read-in-host-folder': `cd "$T_folder" && cat secret`,
  'leave-by-dots': `cat "../../../../../../../..$T_secret"`,
  'source-host-file': `. "$T_secret"; [ $? = 127 ]`,
  'run-host-file': `cp /bin/true "$T_folder/program" && "$T_folder/program"`,
  'change-mode': `chmod 640 "$T_file" && [ "$(stat -c %a "$T_file")" = 640 ]`,
  'change-owner': `chown 12345 "$T_file" && [ "$(stat -c %u "$T_file")" = 12345 ]`,
  'change-times': `touch -d @1 "$T_file" && [ "$(stat -c %Y "$T_file")" = 1 ]`,
  'set-attribute': `python -c 'import os; f = os.environ["T_file"]; os.setxattr(f, "user.x", b"1"); os.getxattr(f, "user.x")'`,
  'change-mode-of-interpreter': `
    before=$(stat -c %a "$T_interpreterFile")
    chmod o+w "$T_interpreterFile"
    after=$(stat -c %a "$T_interpreterFile")
    chmod "$before" "$T_interpreterFile"
    [ "$before" != "$after" ]`,
  'write-into-interpreter': `file="$(dirname "$T_interpreterFile")/escape"; echo x > "$file" && rm "$file"`,
  'write-into-usr': `echo x > /usr/everturn-escape && rm /usr/everturn-escape`,
  'write-into-etc': `echo x > /etc/everturn-escape && rm /etc/everturn-escape`,
  'write-into-tools': `echo x > "$T_tools/tool.py"`,
  'write-into-skills': `echo x > "$T_skills/skill.md"`,
  'read-other-workspace': `cat "$T_other/workspace/theirs"`,
  'write-other-workspace': `echo x > "$T_other/workspace/ours"`,
  'list-other-sandbox': `ls "$T_other"`,
  'write-other-home': `echo x > "$T_other/home/.bashrc"`,
};

const DEVICES_AND_PROC: Record<string, string> = {
  'open-kernel-log': `: < /dev/kmsg`,
  'make-device': `mknod zero c 1 5 && head -c 1 zero`,
  'read-environment-of-host': `grep -a PATH= "/proc/$T_host/environ" > /dev/null`,
  'read-environment-of-parent': `grep -a PATH= "/proc/$PPID/environ" > /dev/null`,
  'read-command-line-of-host': `grep -a . "/proc/$T_host/cmdline"`,
  'open-memory-of-host': `: < "/proc/$T_host/mem"`,
  'list-files-of-host-process': `ls "/proc/$T_host/fd"`,
  'enter-root-of-host': `cat "/proc/$T_host/root/etc/passwd"`,
  'read-own-mounts': `cat /proc/self/mountinfo`,
  'write-setting-of-linux': `: >> /proc/sys/kernel/hostname`,
  'read-sysfs': `ls /sys/class/net`,
};

const connects = (family: string, address: string) =>
  `python -c 'import os, socket; socket.socket(socket.${family}).connect(${address})'`;

const SOCKETS: Record<string, string> = {
  'connect-by-bash': `: > "/dev/tcp/127.0.0.1/$T_port"`,
  'send-by-bash': `echo x > "/dev/udp/127.0.0.1/$T_port"`,
  'fetch-url': `python -c 'import os, urllib.request as r; r.urlopen("http://127.0.0.1:" + os.environ["T_port"], timeout=5)'`,
  'connect-unix-path': connects('AF_UNIX', 'os.environ["T_socket"]'),
  'connect-unix-abstract': connects('AF_UNIX', '"\\0" + os.environ["T_abstract"]'),
  'listen-tcp': `python -c 'import socket; socket.create_server(("127.0.0.1", 0))'`,
  netlink: `python -c 'import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)'`,
  'raw-packets': `python -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'`,
};

const PROCESSES: Record<string, string> = {
  'signal-stranger': `kill -CONT "$T_victim"`,
  'signal-host': `kill -0 "$T_host"`,
  'signal-watching-process': `[ "$PPID" != 0 ] && kill -0 "$PPID"`,
  'signal-everyone': `kill -0 -- -1`,
  'signal-group-of-stranger': `kill -0 -- "-$T_victim"`,
  'trace-stranger': `python -c 'import ctypes, os; os._exit(ctypes.CDLL(None).ptrace(0x4206, int(os.environ["T_victim"]), 0, 0) != 0)'`,
  'trace-itself': `python -c 'import ctypes, os; os._exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) != 0)'`,
  'priority-of-stranger': `renice -n 1 -p "$T_victim"`,
  'disk-priority-of-stranger': `ionice -c 2 -p "$T_victim"`,
  'processors-of-stranger': `taskset -cp 0 "$T_victim"`,
  'limits-of-stranger': `prlimit --nofile --pid "$T_victim"`,
  'leave-session': `setsid --wait true`,
  'leave-group': `python -c 'import os; os.fork() or (os.setpgid(0, 0), os._exit(0)); os._exit(os.wait()[1] != 0)'`,
  'outlive-host': `python -c 'import ctypes, os; os._exit(ctypes.CDLL(None).prctl(1, 0, 0, 0, 0) != 0)'`,
  'more-processors': `taskset -cp "0-$(python -c 'import os; print(os.cpu_count() - 1)')" $$`,
};

const PRIVILEGES: Record<string, string> = {
  'become-root-by-setuid-program': `su root -s /bin/sh -c true`,
  'become-other-user-by-setuid-program': `su nobody -s /bin/sh -c true`,
  'become-other-user': `setpriv --reuid 12345 true`,
  'drop-groups': `setpriv --clear-groups true`,
  'mount-by-setuid-program': `mkdir mounted && mount -t tmpfs none mounted && umount mounted`,
  'bind-root': `mkdir bound && mount --bind / bound && umount bound`,
  'new-user-namespace': `unshare --user true`,
  'new-network-namespace': `unshare --net true`,
  'new-mount-namespace': `unshare --mount true`,
  'join-namespace': `nsenter --target "$T_host" --net true`,
  'change-root': `/usr/sbin/chroot / true`,
  'no-random-addresses': `setarch -R true`,
  'name-the-machine': `hostname "$(hostname)"`,
  'give-own-program-to-all': `cp /bin/true given && chmod 4755 given && [ -u given ]`,
  'install-program-for-all': `install -m 4755 /bin/true installed && [ -u installed ]`,
  'program-in-memory': `python -c 'import os; os.memfd_create("program")'`,
  'hidden-shared-memory': `id=$(ipcmk -M 4096) && ipcrm -m "\${id##* }"`,
};

export const COMMAND_ESCAPES = Object.entries({
  ...FILES,
  ...DEVICES_AND_PROC,
  ...SOCKETS,
  ...PROCESSES,
  ...PRIVILEGES,
}).map(([id, body]) => ({ id, body }));

/** A command that prints `True` as its last line if the attempt succeeds. */
export function commandOf({ body }: { body: string }): string {
  return `attempt() {\n${body}\n}\nif attempt 2>&1; then result=True; else result=False; fi\nprintf '\\n%s\\n' $result`;
}
