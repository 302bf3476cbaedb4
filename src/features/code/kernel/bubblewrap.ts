import path from 'node:path';
import { SKILLS_FOLDER } from '../../../spec/workspace-path.ts';
import type { SandboxFolders } from './sandbox-folders.ts';

/**
 * The files in /etc that programs read to find libraries, other programs, the time, fonts and certificates, and that
 * pip reads. None of them is secret.
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

/** The paths of a sandbox's folders inside of it. */
export const SANDBOX_FOLDERS: SandboxFolders = {
  workspace: '/workspace',
  tools: '/tools',
  skills: SKILLS_FOLDER,
  home: '/home/agent',
  tmp: '/tmp',
};

/** The path, inside of a sandbox, of the folder in which a kernel stores its variables. */
export const VARIABLES_PLACE = '/variables';

/** The path, inside of a sandbox, of the Python half of kernels: its own /tmp would hide a checkout below /tmp. */
export const PROGRAM_PLACE = '/everturn';

/** The proxy inside of a sandbox: a port of its loopback, which has no other server, and behind it a host socket. */
export const PROXY_PORT = 3128;
export const PROXY_SOCKET = '/proxy.sock';

interface SandboxOptions {
  folders: SandboxFolders;
  /** The folder of the Python half of kernels. */
  program: string;
  /** Folders of this machine that are readable inside under the same path. */
  readable: string[];
  /** The socket of the proxy to the network; undefined: no network. */
  proxy: string | undefined;
  /** Whether this process is root: then the kernel keeps two capabilities until it has changed its user inside. */
  isRoot: boolean;
}

/**
 * The arguments of bubblewrap before the program. The kernel can access only its folders, the system's libraries and
 * its interpreter. There is no /proc, which would reveal more than any library needs.
 */
export function bubblewrapArguments({ folders, program, readable, proxy, isRoot }: SandboxOptions): string[] {
  const inside = SANDBOX_FOLDERS;
  const options = [
    ['--unshare-ipc', '--unshare-pid', '--unshare-net', '--unshare-uts', '--hostname', 'kernel', '--die-with-parent'],
    isRoot ? ['--cap-drop', 'ALL', '--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID'] : ['--unshare-user'],
    // Created here, since bubblewrap itself would create parent folders for its own user only.
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
    // Shared memory is on disk, too: the memory of a tmpfs would be counted for no process.
    ['--bind', folders.tmp, '/dev/shm'],
    ['--remount-ro', '/'],
    ['--chdir', '/'],
    ['--'],
  ];
  return options.flat();
}
