import path from 'node:path';
import { SKILLS } from '../../../spec/workspace-path.ts';
import type { SandboxFolders } from './sandbox-folders.ts';

/**
 * What programs read of /etc to find libraries, other programs, the time, fonts and certificates, and what pip reads of the
 * system. None of it is a secret.
 */
export const SYSTEM_FILES = [
  '/etc/ld.so.cache',
  '/etc/alternatives',
  '/etc/localtime',
  '/etc/fonts',
  '/etc/ssl/certs',
  '/etc/mime.types',
  '/etc/os-release',
  '/etc/debian_version',
];
const LIBRARIES = ['/lib', '/lib64', '/bin'];
const DEVICES = ['/dev/null', '/dev/zero', '/dev/full', '/dev/random', '/dev/urandom'];

/** Where the folders of a sandbox are for its kernels. */
export const SANDBOX_FOLDERS: SandboxFolders = {
  workspace: '/workspace',
  tools: '/tools',
  skills: SKILLS,
  home: '/home/agent',
  tmp: '/tmp',
};

/** Where a kernel that stores its variables has the folder for them. */
export const VARIABLES_PLACE = '/variables';

/** Where the Python half of kernels is inside: a checkout below /tmp would be hidden by the sandbox's own. */
export const PROGRAM_PLACE = '/everturn';

/** Where a sandbox has its proxy: a port of its loopback, which has no other server, and behind it a socket of the host. */
export const PROXY_PORT = 3128;
export const PROXY_SOCKET = '/proxy.sock';

interface SandboxOptions {
  folders: SandboxFolders;
  /** The folder of the Python half of kernels. */
  program: string;
  /** Folders of this machine, readable inside under the same name. */
  readable: string[];
  /** The socket of the proxy by which it reaches the network; undefined: it does not. */
  proxy: string | undefined;
  /** Whether this process is root: then the kernel changes its user inside, for which it needs two capabilities until then. */
  isRoot: boolean;
}

/**
 * The arguments of bubblewrap before the program: the kernel sees its folders, the system's libraries and its interpreter,
 * and nothing else. There is no /proc: it would show more than any library needs.
 */
export function bubblewrapArguments({ folders, program, readable, proxy, isRoot }: SandboxOptions): string[] {
  const inside = SANDBOX_FOLDERS;
  const options = [
    ['--unshare-ipc', '--unshare-pid', '--unshare-net', '--unshare-uts', '--hostname', 'kernel', '--die-with-parent'],
    isRoot ? ['--cap-drop', 'ALL', '--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID'] : ['--unshare-user'],
    // bubblewrap would create them for its own user only.
    ...[inside.home, '/dev/shm', ...SYSTEM_FILES, ...readable].map((place) => ['--dir', path.dirname(place)]),
    ['--ro-bind', '/usr', '/usr'],
    ...[...LIBRARIES, ...SYSTEM_FILES].map((file) => ['--ro-bind-try', file, file]),
    ...DEVICES.map((device) => ['--dev-bind', device, device]),
    ...readable.map((folder) => ['--ro-bind', folder, folder]),
    ['--ro-bind', program, PROGRAM_PLACE],
    ...(proxy === undefined ? [] : [['--ro-bind', proxy, PROXY_SOCKET]]),
    ['--bind', folders.workspace, inside.workspace],
    ['--bind', folders.home, inside.home],
    ['--ro-bind', folders.tools, inside.tools],
    ['--ro-bind', folders.skills, inside.skills],
    ['--bind', folders.tmp, inside.tmp],
    folders.variables === undefined ? [] : ['--bind', folders.variables, VARIABLES_PLACE],
    // Shared memory is on disk, too: a file system in memory would belong to no process whose memory is counted.
    ['--bind', folders.tmp, '/dev/shm'],
    ['--remount-ro', '/'],
    ['--chdir', '/'],
    ['--'],
  ];
  return options.flat();
}
