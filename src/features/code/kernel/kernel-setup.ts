import type { Bait } from './bait.ts';
import { PROXY_PORT, PROXY_SOCKET, SANDBOX_FOLDERS, SYSTEM_FILES, VARIABLES_PLACE } from './bubblewrap.ts';
import type { HostFrame } from './frames.ts';
import type { ResourceLimits, KernelOptions } from './kernel.ts';
import type { SandboxFolders } from './sandbox-folders.ts';
import type { Wall } from './wall.ts';

const LIBRARIES = ['/usr', '/lib', '/lib64', '/bin'];
const RANDOM = ['/dev/random', '/dev/urandom', '/dev/zero'];

const PROXY_URL = `http://127.0.0.1:${PROXY_PORT}`;

/** The wall that the processes of a sandbox put up around themselves. */
export type WallSetup = Pick<StartFrame, 'type' | 'wall' | 'network' | 'limits' | 'bait'>;

type StartFrame = Extract<HostFrame, { type: 'start' }>;

/**
 * The first frame for a kernel.
 *
 * @param folders the folders of the options, with links resolved
 */
export function kernelSetup(options: KernelOptions, folders: SandboxFolders, bait: Bait): StartFrame {
  const inside = foldersInside(options.wall, folders);
  return {
    ...wallSetup(options, folders, bait),
    env: {
      ...baseEnvironment(options),
      // Figures become displays when a cell ends.
      MPLBACKEND: 'module://matplotlib_inline.backend_inline',
      ...options.env,
      ...folderEnvironment(inside),
    },
    workspace: inside.workspace,
    tools: inside.tools,
    variables: inside.variables ?? null,
  };
}

/** The paths of a sandbox's folders behind its wall. */
export function foldersInside(wall: Wall, folders: SandboxFolders): SandboxFolders {
  if (wall.isolation !== 'sandbox') return folders;
  return folders.variables === undefined ? SANDBOX_FOLDERS : { ...SANDBOX_FOLDERS, variables: VARIABLES_PLACE };
}

export function baseEnvironment({ network }: Pick<KernelOptions, 'network'>): Record<string, string> {
  const base = { PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C.UTF-8', TERM: 'dumb', NO_COLOR: '1' };
  if (!network) return base;
  // curl reads `http_proxy` only in lower case; other programs read one form or the other.
  const proxy = { HTTP_PROXY: PROXY_URL, HTTPS_PROXY: PROXY_URL, http_proxy: PROXY_URL, https_proxy: PROXY_URL };
  return { ...base, ...proxy };
}

export function folderEnvironment({ home, tmp }: SandboxFolders): Record<string, string> {
  return { HOME: home, TMPDIR: tmp };
}

export function wallSetup(
  {
    wall,
    uid,
    network,
    limits,
  }: Pick<KernelOptions, 'wall' | 'uid' | 'network'> & { limits: Pick<ResourceLimits, 'cpus' | 'processes'> },
  folders: SandboxFolders,
  bait: Bait,
): WallSetup {
  if (wall.hasOwnUser && uid === undefined) throw new Error('the sandbox needs a user of its own: give its uid');
  const isSandbox = wall.isolation === 'sandbox';
  const inside = foldersInside(wall, folders);
  const user = wall.hasOwnUser ? (uid ?? null) : null;
  const variables = inside.variables === undefined ? [] : [inside.variables];
  const writable = [inside.workspace, inside.home, inside.tmp, ...variables, '/dev/null'];
  const readable = [...LIBRARIES, ...SYSTEM_FILES, ...RANDOM, ...wall.pythonFolders, inside.tools, inside.skills];
  // The system counts all processes of a user: with a shared user, the limit could prevent the start of any process.
  const isCountedAlone = isSandbox || wall.hasOwnUser;
  return {
    type: 'start',
    wall:
      wall.isolation === 'none'
        ? null
        : {
            uid: user,
            gid: user,
            // All files inside of a sandbox may be read.
            read: isSandbox ? ['/'] : readable,
            write: isSandbox ? [...writable, '/dev/shm'] : writable,
            seesHost: !isSandbox,
            sharesUser: !isSandbox && !wall.hasOwnUser,
          },
    network: network ? { port: PROXY_PORT, socket: PROXY_SOCKET } : null,
    limits: { cpus: Math.ceil(limits.cpus), processes: isCountedAlone ? limits.processes : null },
    bait,
  };
}
